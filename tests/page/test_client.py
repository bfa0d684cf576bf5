"""The named endpoints, as a script uses them through gradio_client."""

from gradio_client import Client

from tests.serving import DEFAULTS, rows_of, served
from tests.tiny import scripted_lm, token_ids


def test_gradio_client_streams_a_run():
    lm = scripted_lm([token_ids("hello")], seconds=0.15)
    with served(lm) as url:
        client = Client(url, verbose=False)
        settings = [DEFAULTS[name] for name in DEFAULTS]
        job = client.submit(rows_of(["Hi"], 5), "scripted", *settings, api_name="/run")
        last = job.result()
        stages = [output[0] for output in job.outputs() if "logs" in (output[0] or {})]
        assert stages[-1]["status"] == "done"
        assert [len(stage["logs"][0].split("\n")) - 1 for stage in stages][-1] == 5
        assert last[0]["summary"].startswith("1 request, 5 tokens")


def test_only_run_and_stop_are_offered():
    with served(scripted_lm([[1]])) as url:
        endpoints = Client(url, verbose=False).view_api(return_format="dict", print_info=False)
        assert set(endpoints["named_endpoints"]) == {"/run", "/stop"}
