"""Prints failed tests and `N passed, N failed, N skipped` of one `bazel test`.

usage: test_summary.py BUILD_EVENT_JSON_FILE BAZEL_EXIT_STATUS

Cases come from each target's GoogleTest report.  A target that failed without a failed case (it did
not build, timed out, or a rank other than 0 failed under mpirun) counts as one failure.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree


def read_events(path):
    """The test targets' statuses {label: status} and reports {label: [path of test.xml]}."""
    statuses, reports = {}, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            event_id = event["id"]
            if "configured" in event and "testSize" in event["configured"]:
                statuses.setdefault(event_id["targetConfigured"]["label"], "NOT_BUILT")
            elif event.get("completed", {}).get("success"):
                # Built: a result follows, unless a tag filter leaves the test out.
                if statuses.get(event_id["targetCompleted"]["label"]) == "NOT_BUILT":
                    del statuses[event_id["targetCompleted"]["label"]]
            elif "testSummary" in event:
                statuses[event_id["testSummary"]["label"]] = event["testSummary"]["overallStatus"]
            elif "testResult" in event:
                result = event_id["testResult"]
                paths = reports.setdefault(result["label"], {})
                for output in event["testResult"].get("testActionOutput", []):
                    if output["name"] == "test.xml":
                        path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
                        paths[result.get("run"), result.get("shard")] = path
    return statuses, {label: list(paths.values()) for label, paths in reports.items()}


def read_report(path):
    """The cases of one report: [(name, "passed" | "failed" | "skipped")]."""
    try:
        root = xml.etree.ElementTree.parse(path)
    except (OSError, xml.etree.ElementTree.ParseError):
        return []
    cases = []
    for case in root.iter("testcase"):
        name = ".".join(x for x in (case.get("classname"), case.get("name")) if x)
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif case.get("result") in ("skipped", "suppressed") or case.get("status") == "notrun":
            outcome = "skipped"
        else:
            outcome = "passed"
        cases.append((name, outcome))
    return cases


def main(events_path, bazel_status):
    statuses, reports = read_events(events_path)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for label in sorted(statuses):
        cases = [case for path in reports.get(label, []) for case in read_report(path)]
        failed = [name for name, outcome in cases if outcome == "failed"]
        if statuses[label] != "PASSED" and not failed:
            failed = [statuses[label]]
            counts["failed"] += 1
        for _, outcome in cases:
            counts[outcome] += 1
        for name in failed:
            print("FAILED", label, name)
    if bazel_status != 0 and counts["failed"] == 0:
        print("FAILED bazel: exit status", bazel_status)
        counts["failed"] += 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
