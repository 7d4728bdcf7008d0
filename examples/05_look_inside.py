"""One body is meaning, documentation and kernel source: look at all of them."""

from trueno.backend import TABLE, lower

op = TABLE["softmax"]
print(op.signature.text)
print(op.doc.splitlines()[0])
print()
print(op.program().text)
print()
for k, sweep in enumerate(lower(op.program()).passes):
    print(f"pass {k}: reads {[s for _, s in sweep.loads]}, folds {len(sweep.folds)}, stores {len(sweep.stores)}")

try:
    from trueno_simd.rows.source import printed
except ImportError:
    print("install trueno-simd to see the compiled kernel's source")
else:
    print(printed(op, "float32", "e", 1, block=4096).partition("@entry")[2][:400])
