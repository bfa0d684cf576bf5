// How full the batches of the last minutes were: a bar for each slice of the time.

const chart = find("watch-chart");

function drawFill(minutes) {
  const width = chart.clientWidth;
  if (!width || !minutes) return; // in a hidden tab; the resize observer comes back
  const letters = parseFloat(getComputedStyle(chart).fontSize);
  const { fill, batch_size: full } = minutes;
  const ago = (i) => ((i + 0.5 - fill.length) * props.slice_seconds) / 60;
  const text = { size: letters, color: colour("muted") };
  const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: full, y1: full };
  const side = ["left", "right"];
  const at = (x, text) => ({ text, x, xanchor: side[x], xref: "paper", y: 0, yref: "paper", yanchor: "top", showarrow: false });
  Plotly.react(
    chart,
    [{ type: "bar", x: fill.map((_, i) => ago(i)), y: fill, marker: { color: colour("active") }, hoverinfo: "skip" }],
    {
      width,
      height: chart.clientHeight,
      margin: { l: 1.9 * letters, r: 0.4 * letters, t: 0.6 * letters, b: 1.7 * letters },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(watchRoot).fontFamily, ...text },
      bargap: 0.15,
      shapes: [{ ...line, line: { width: 1, dash: "dash", color: colour("muted") } }],
      xaxis: {
        range: [-props.minutes, 0],
        showticklabels: false,
        showgrid: false,
        zeroline: false,
        ticks: "",
      },
      annotations: [at(0, `${props.minutes} min ago`), at(1, "now")],
      yaxis: {
        range: [0, Math.max(full, ...fill) * 1.08],
        tickvals: [0, full],
        showgrid: false,
        zeroline: true,
        zerolinecolor: colour("line"),
        ticks: "",
      },
    },
    { staticPlot: true },
  );
}
