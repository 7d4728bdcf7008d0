"""An entry's plan: the current state, the slot of the call's key in its table, the kernel's machine code."""

from trueno.backend import contract

from trueno_simd.door.frame import Frame


def find(frame: Frame, form: int | None) -> str:
    """The address of the kernel for this form of call (None: as declared, in one or two dimensions).

    A slot of another generation goes to `miss`, one without code to `slow`.
    """
    f = frame.f
    state = _words_of_state(frame)
    table = f.load("ptr", f.at(state, frame.fact("table", kind="i64")))
    size = f.times(f.load("i64", frame.rows), f.load("i64", frame.n))
    bits = f(f"sub i64 64, {f(f'call i64 @llvm.ctlz.i64(i64 {size}, i1 false)')}")
    f.require(f(f"icmp ult i64 {bits}, {contract.CLASSES}"), "slow")
    number = f(f"zext i1 {f.load('i1', frame.deep)} to i64") if form is None else str(form)
    row = f(f"add i64 {f(f'shl i64 {number}, 1')}, {f.load('i64', frame.wide)}")
    key = f(f"add i64 {f(f'mul i64 {row}, {contract.CLASSES}')}, {bits}")
    f.store("i64", key, frame.key)
    f.require(f.given(table), "miss")
    slot = f.at(table, f(f"mul i64 {key}, {contract.SLOT}"))
    f.require(f.same("i64", f.load("i64", slot), f.load("i64", state)), "miss")
    code = f.load("ptr", slot, 8)
    f.require(f.given(code), "slow")
    return code


def _words_of_state(frame: Frame) -> str:
    """The words of the base state while no other ever was current, else those of the context's state."""
    f = frame.f
    address = f.slot("ptr")
    f.store("ptr", frame.word("base"), address)

    def ask() -> None:
        current = f.slot("ptr", "null")
        status = frame.call("i32", "context_get", f"ptr {frame.word('variable')}", "ptr null", f"ptr {current}")
        f.require(f.same("i32", status, 0), "clear")
        state = f.load("ptr", current)
        f.require(f.given(state), "slow")
        frame.release(state)  # the context holds it
        f.store("ptr", frame.part(frame.part(state, "state_words"), "data"), address)

    f.unless(f.same("i64", f.load("i64", frame.word("overridden")), 0), ask)
    return f.load("ptr", address)


def leave(frame: Frame) -> None:
    """The ways out: `clear`, which forgets an error of the C API, `slow`, and `miss`, which has the slot filled."""
    f = frame.f
    handed = "ptr %args, i64 %nargsf, ptr %kwnames"
    f.place("clear")
    f.do(f"call void {frame.word('error_clear')}()")
    f.goto("slow")
    f.place("slow")
    vectorcall, slow = frame.word("vectorcall"), frame.fact("slow")
    result = f(f"tail call ptr {vectorcall}(ptr {slow}, {handed})")
    f.do(f"ret ptr {result}")
    f.place("miss")
    result = frame.call("ptr", "vectorcall", f"ptr {frame.fact('slow')}", handed)
    f.require(f.given(result), "failed")
    number = frame.call("ptr", "int_from", f"i64 {f.load('i64', frame.key)}")
    f.require(f.given(number), "lost")
    nothing = frame.call("ptr", "call_one", f"ptr {frame.fact('fill')}", f"ptr {number}")
    frame.release(number)
    f.require(f.given(nothing), "lost")
    frame.release(nothing)
    f.do(f"ret ptr {result}")
    f.place("lost")
    frame.release(result)
    f.goto("failed")
    f.place("failed")
    f.do("ret ptr null")
