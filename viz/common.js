// Shared by the components' scripts, which run as functions of their own with `element` given.
// Prompts and generated text reach the page through textContent alone.

const find = (name) => element.querySelector(`.bs-${name}`);

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// What is there stays, as far as it can: less is then styled and laid out anew.
function setText(node, text) {
  if (node.textContent === text) return;
  const [only, ...more] = node.childNodes;
  if (only instanceof Text && !more.length) only.data = text;
  else node.textContent = text;
}

// Listens on the document for as long as the component is part of it.
function onDocument(type, handler) {
  document.addEventListener(type, function listen(event) {
    if (element.isConnected) handler(event);
    else document.removeEventListener(type, listen);
  });
}

// Kept for this tab alone, and only where there is room: frames of another site may have none.
function keep(name, text) {
  try {
    window.sessionStorage.setItem(name, text);
  } catch (error) {
    console.debug(error);
  }
}

function kept(name) {
  try {
    return window.sessionStorage.getItem(name);
  } catch (error) {
    console.debug(error);
    return null;
  }
}

