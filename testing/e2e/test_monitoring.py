"""The rules for Prometheus and the dashboard for Grafana name metrics that servers export."""

import json
import re
import shutil
import subprocess
import urllib.request

import farcall
import pytest
from servers import FARCALL, LIBRARIES, ROOT, free_addresses, known, stop, wait_until

RULES = ROOT / "docs" / "prometheus.rules.yml"
DASHBOARD = ROOT / "docs" / "grafana.json"

# What Prometheus decides about some moments: a failure in every second call, and a lost server.
TEST = """\
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'farcall_calls_total{instance="a",outcome="done"}', values: '0+60x60'}
      - {series: 'farcall_calls_total{instance="a",outcome="failed"}', values: '0+60x60'}
      - {series: 'farcall_calls_total{instance="b",outcome="done"}', values: '0+60x60'}
      - {series: 'farcall_calls_total{instance="b",outcome="failed"}', values: '0+1x60'}
      - {series: 'farcall_meta_servers{instance="m",state="lost"}', values: '0x20 1x40'}
    promql_expr_test:
      - expr: 'farcall:failures:ratio5m{instance="a"}'
        eval_time: 30m
        exp_samples: [{labels: 'farcall:failures:ratio5m{instance="a"}', value: 0.5}]
    alert_rule_test:
      - alertname: FarcallCallsFail
        eval_time: 40m
        exp_alerts:
          - exp_labels: {severity: page, instance: a}
            exp_annotations:
              summary: "50% of the calls of a fail"
              description: "`farcall record summary` of its record shows which functions and users."
      - alertname: FarcallServersLost
        eval_time: 19m
        exp_alerts: []
      - alertname: FarcallServersLost
        eval_time: 40m
        exp_alerts:
          - exp_labels: {severity: page, instance: m, state: lost}
            exp_annotations:
              summary: "m has lost 1 servers"
              description: "`farcall status` names them."
"""


@pytest.fixture(scope="module")
def promtool():
    """Prometheus's checker, which `scripts/setup monitoring` installs."""
    setup = ROOT / "scripts" / "setup"
    said = subprocess.run([setup, "monitoring"], capture_output=True, text=True, check=False)
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(f"promtool is not installed: {said.stderr.strip()}")

    def run(*words):
        ran = subprocess.run(
            [promtool, *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def expressions():
    """The expressions of the dashboard."""
    board = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_prometheus_accepts_the_rules(promtool):
    assert "SUCCESS" in promtool("check", "rules", RULES)


def test_alerts_fire_when_they_should(promtool, tmp_path):
    shutil.copy(RULES, tmp_path / "rules.yml")
    (tmp_path / "test.yml").write_text(TEST)
    promtool("test", "rules", tmp_path / "test.yml")


def test_prometheus_accepts_the_expressions_of_the_dashboard(promtool, tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$instance", ".*")}
        for number, expr in enumerate(expressions())
    ]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert "SUCCESS" in promtool("check", "rules", path)


def test_the_dashboard_is_one():
    board = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) > 10
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(ids)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(board["panels"])))
    assert used == variables


def exported(address):
    """The names of the series at an address."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")}


def test_servers_export_every_metric_that_is_named(start):
    addresses = free_addresses(2)
    words = [FARCALL, "meta", "--listen", "127.0.0.1:0", "--metrics", addresses[0]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            meta = process.stdout.readline().split()[-1]
            options = ["--metaserver", meta, "--metrics", addresses[1]]
            server = start(LIBRARIES / "bench.idl", options=options)
            client = farcall.connect("meta://" + meta.removeprefix("farcall://"))
            wait_until(lambda: known(client, "bench/null"))
            server.connect().function("bench/null")(1)
            names = set.union(*map(exported, addresses))
        finally:
            assert stop(process) == 0
    rules = RULES.read_text()
    recorded = set(re.findall(r"record: (\S+)", rules))
    texts = [*re.findall(r"expr: (?:>-\n)?((?:.|\n(?! *[a-z]+:))*)", rules), *expressions()]
    board = DASHBOARD.read_text()
    named = set(re.findall(r"farcall[_:][a-z0-9_:]+", "\n".join([*texts, board])))
    assert len(named) > 20
    assert named - recorded - names == set()
    # Every rule is used: by an alert or on the dashboard.
    used = set(re.findall(r"farcall:[a-z0-9_:]+", board + "".join(re.findall(r"expr: .*", rules))))
    assert recorded == used
