"""FORCE_CPU: no GPU plugin is imported or tried, in threads and child processes neither."""

import os

import pytest

PROGRAM = """
import multiprocessing, subprocess, threading

GPU = ("trueno_fake", "trueno_chaos.forbidden")

def work():
    x = np.ones(1 << 20, np.float32)
    m = np.ones((600, 600), np.float32)
    decision = trueno.explain("add", x, x)
    return {
        "add": float(trueno.add(x, x)[-1]), "matmul": float(trueno.matmul(m, m)[0, 0]),
        "chosen": decision.chosen, "loaded": [n for n in GPU if n in sys.modules],
        "codes": {n: trueno.backends()[n].code for n in ("fake", "forbidden_gpu")},
    }

def into(queue):
    queue.put(work())

if __name__ == "__main__":
    report = {"main": work()}
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(work())) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i, one in enumerate(seen):
        report[f"thread {i}"] = one
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        child = context.Process(target=into, args=(queue,))
        child.start()
        report[method] = queue.get()
        child.join()
    if len(sys.argv) == 1:
        done = subprocess.run([sys.executable, sys.argv[0], "again"], capture_output=True, text=True)
        report["subprocess"] = json.loads(done.stdout.rpartition("@")[2])["report"]["main"]
    named = {}
    for how in ("use", "set_default", "to"):
        try:
            if how == "use":
                trueno.use("fake").__enter__()
            elif how == "to":
                trueno.to(np.ones(3, np.float32), "fake")
            else:
                trueno.set_default("fake")
            named[how] = ""
        except trueno.BackendUnavailable as error:
            named[how] = str(error)
    say(report=report, named=named, loaded=[n for n in GPU if n in sys.modules])
"""


@pytest.mark.parametrize("variable", ["FORCE_CPU", "TRUENO_FORCE_CPU"])
def test_no_gpu_plugin_is_touched(host, tmp_path, variable):
    marks = tmp_path / "marks"
    marks.mkdir()
    there = host(chaos=["forbidden_gpu"], fake=None)
    # Honest speeds would keep the device from being chosen anyway; these would not.
    there.environment |= {"CHAOS_MARKS": str(marks), "TRUENO_FAKE_RATES": "1e-9 1e15 1e15 1e-9 1e15", variable: "1"}
    done = there.script(PROGRAM)
    assert done.code == 0 and done.said, str(done)
    met = done.said
    assert len(met["report"]) >= 7
    for where, one in met["report"].items():
        assert one["add"] == 2 and one["matmul"] == 600, where
        assert one["chosen"] == "scalar" and not one["loaded"], where
        assert set(one["codes"].values()) == {"forced_cpu"}, where
    assert not met["loaded"] and not os.listdir(marks)
    for how, message in met["named"].items():
        assert message.startswith("fake: ") and variable in message, how


def test_the_same_program_would_use_it(host):
    """Without the setting the device is chosen: the test above tests something."""
    there = host(fake=None)
    met = there.says(
        """
x = np.ones(1 << 20, np.float32)
say(chosen=trueno.explain("add", x, x).chosen, loaded="trueno_fake" in sys.modules)
""",
        TRUENO_FAKE_RATES="1e-9 1e15 1e15 1e-9 1e15",
    )
    assert met == {"chosen": "fake", "loaded": True}


def test_naming_a_gpu_and_forbidding_it_is_an_error(host):
    there = host(fake=None)
    met = there.says(
        """
try:
    trueno.add(np.ones(3, np.float32), 1.0)
    raised = ""
except trueno.TruenoError as error:
    raised = f"{type(error).__name__}: {error}"
say(raised=raised)
""",
        FORCE_CPU="1",
        TRUENO_BACKEND="fake",
    )
    assert (
        met["raised"].startswith("BackendUnavailable: environment TRUENO_BACKEND: fake: ")
        and "FORCE_CPU" in met["raised"]
    )


def test_the_namespaced_spelling_wins(host):
    there = host(fake=None)
    ask = "e = trueno.backends()['fake']; say(available=e.available, code=e.code)"
    assert there.says(ask, FORCE_CPU="1", TRUENO_FORCE_CPU="0")["available"]
    assert there.says(ask, FORCE_CPU="0", TRUENO_FORCE_CPU="1")["code"] == "forced_cpu"


def test_doctor_calls_it_switched_off(host):
    code, report = host(fake=None).doctor(FORCE_CPU="1")
    row = next(r for r in report["backends"] if r["name"] == "fake")
    assert code == 0 and report["health"] == "ok"
    assert row["status"] == "switched off" and "FORCE_CPU" in row["reason"]
