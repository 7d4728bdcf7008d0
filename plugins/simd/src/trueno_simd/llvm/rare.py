"""A slow path for few arguments that does not stop a loop from being vectorized."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd.llvm.isa import X86, level
from trueno_simd.llvm.vectors import suffix

# The call stands behind a branch in the loop; these conventions, made for vector math libraries, keep half of the
# vector registers, so that the loop's constants stay where they are.
CONVENTION = "intel_ocl_bicc" if level() in X86 else "aarch64_vector_pcs" if level() == "neon" else ""
WIDTHS = (2, 4, 8, 16)  # lanes that LLVM may ask for


def rarely(name: str, function: Any, kind: Any, limit: float) -> Any:
    """`function(x)` where |x| > limit, elsewhere 0: a call that LLVM can vectorize.

    `kind` is x's type and the result's.  `name` becomes a scalar LLVM function and, for every width, a vector
    function that tests all lanes at once and, only if one is beyond the limit, calls another, which calls the scalar
    one for each lane.  LLVM finds them by the attribute `vector-function-abi-variant` (the way in which vector math
    libraries are bound), and `trueno_simd.llvm.linking` inlines the test.  They are `weak_odr` since nothing names them
    until then.  A NaN is not beyond the limit.
    Call it before the fast path: what is computed earlier has to be kept across the call.
    """
    lane, index = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}[kind], ir.IntType(32)

    def beyond(builder: Any, x: Any) -> Any:
        def same(value: float) -> Any:
            one = ir.Constant(lane, value)
            return one if x.type == lane else ir.Constant(x.type, [one] * x.type.count)

        kind = ir.FunctionType(x.type, [x.type])
        magnitude = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fabs.{suffix(x.type)}")
        return builder.fcmp_ordered(">", builder.call(magnitude, [x]), same(limit))

    def define(module: Any, symbol: str, type_: Any, *attributes: str) -> tuple[Any, Any]:
        defined = ir.Function(module, ir.FunctionType(type_, [type_]), symbol)
        defined.linkage = "weak_odr"
        for word in ("nounwind", "willreturn", "memory(none)", *attributes):
            set.add(defined.attributes, word)  # llvmlite's own `add` knows an older list of words
        return defined, ir.IRBuilder(defined.append_basic_block())

    def build(context: Any, module: Any) -> Any:
        compiled = function.overloads[(kind,)]
        context.active_code_library.add_linking_library(compiled.library)
        target = context.declare_function(module, compiled.fndesc)
        names = ",".join(f"_ZGV_LLVM_N{n}v_{name}({name}_{n})" for n in WIDTHS)
        scalar, builder = define(module, name, lane, "noinline", f'"vector-function-abi-variant"="{names}"')
        with builder.if_then(beyond(builder, scalar.args[0]), likely=False):
            _, value = context.call_conv.call_function(builder, target, kind, (kind,), scalar.args)
            builder.ret(value)
        builder.ret(ir.Constant(lane, 0.0))
        for n in WIDTHS:
            lanes = ir.VectorType(lane, n)
            each, builder = define(module, f"{name}_{n}_each", lanes, "noinline", "cold")
            each.calling_convention = CONVENTION
            values = ir.Constant(lanes, None)
            for k in (ir.Constant(index, i) for i in range(n)):
                x = builder.extract_element(each.args[0], k)
                values = builder.insert_element(values, builder.call(scalar, [x]), k)
            builder.ret(values)
            vector, builder = define(module, f"{name}_{n}", lanes, "alwaysinline")
            vector.calling_convention = CONVENTION
            mask = builder.bitcast(beyond(builder, vector.args[0]), ir.IntType(n))
            any_beyond = builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0))
            with builder.if_then(any_beyond, likely=False):
                builder.ret(builder.call(each, vector.args, cconv=CONVENTION))
            builder.ret(ir.Constant(lanes, None))
        return scalar

    def typed(_: Any, x: Any) -> Any:
        if x != kind:
            return None
        function.compile((kind,))

        def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
            module = builder.module
            return builder.call(module.globals.get(name) or build(context, module), values)

        return x(x), emit

    return intrinsic(typed)
