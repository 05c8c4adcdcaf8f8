"""A GPU's threads in NumPy: runs the PTX of a compiled kernel, to test what the compiler made where there is no GPU.

A warp is 32 lanes, a register an array of them; warps take turns from barrier to barrier. What Triton emits for
products of float16, bfloat16 and TF32 (``mma``), their operands (``ldmatrix``), shuffles and plain arithmetic is known,
nothing else: ``wgmma`` and asynchronous copies, so products of 64 rows by four warps and more, are not.
"""

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

LANES = np.arange(32)
SHARED_BYTES = 1 << 17
UNSIGNED: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
Array = np.ndarray


def _bits(kind: str) -> int:
    """Return the bits of "s32" or "b64"."""
    return int(re.sub(r"\D", "", kind))


def _f32(x: Array) -> Array:
    return x.view(np.float32)


def _halves(x: Array, kind: str = "f16") -> tuple[Array, Array]:
    """Split registers into the two numbers of 16 bits that they hold; bfloat16 are returned as float32."""
    if kind == "bf16":
        return _f32(x << 16), _f32(x & np.uint32(0xFFFF0000))
    low, high = ((half & 0xFFFF).astype(np.uint16) for half in (x, x >> 16))
    return (low.view(np.float16), high.view(np.float16)) if kind == "f16" else (low, high)


def _joined(low: Array, high: Array) -> Array:
    """Join two arrays of 16 bits."""
    return low.view(np.uint16).astype(np.uint32) | (high.view(np.uint16).astype(np.uint32) << 16)


def _bfloat16(x: Array) -> Array:
    """Round the bits of float32 to bfloat16's, to nearest, ties to even."""
    wide = x.astype(np.uint64)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)


FLOAT: dict[str, Callable[..., Array]] = {
    "fma": lambda x, y, z: x.astype(np.float64) * y + z,
    "mul": np.multiply,
    "add": np.add,
    "sub": np.subtract,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.fmax,
    "min": np.fmin,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
    "ex2": np.exp2,
}
WHOLE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mad": lambda x, y, z: x * y + z,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "neg": lambda x: 0 - x,
    "min": np.minimum,
    "max": np.maximum,
    "div": lambda x, y: np.trunc(x.astype(np.float64) / np.where(y == 0, 1, y)).astype(x.dtype),  # exact to 32 bits
    "rem": lambda x, y: np.fmod(x, np.where(y == 0, 1, y)),
}
COMPARED: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "num": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    "nan": lambda x, y: np.isnan(x) | np.isnan(y),
}


class Program:
    """One kernel, compiled.

    Args:
        ptx: what the compiler wrote.
        warps: of a program.
    """

    def __init__(self, ptx: str, warps: int) -> None:
        self.warps = warps
        self.lines: list[tuple[str, str, list[str]]] = []  # predicate, operation, operands
        self.labels: dict[str, int] = {}
        body = re.sub(r"//[^\n]*", "", ptx[ptx.index("{", ptx.index(".entry")) :])
        for line in map(str.strip, body.split("\n")):
            if label := re.match(r"(\$\w+):", line):
                self.labels[label[1]] = len(self.lines)
            elif line and line[0] not in ".{}":
                for statement in filter(None, map(str.strip, line.split(";"))):
                    self.lines.append(_parsed(statement))

    def run(self, place: tuple[int, ...], grid: tuple[int, ...], parameters: list[int]) -> None:
        """Run the program at one place of the grid; addresses among the parameters are this process's."""
        shared = np.zeros(SHARED_BYTES, np.uint8)
        special = {
            f"%{name}.{axis}": value
            for name, values in (("ctaid", place), ("nctaid", grid))
            for axis, value in zip("xyz", values, strict=False)
        }
        running = [Warp(self, i, shared, special, parameters).steps() for i in range(self.warps)]
        with np.errstate(all="ignore"):
            while running:
                running = [warp for warp in running if next(warp, None) is not None]


def _parsed(statement: str) -> tuple[str, str, list[str]]:
    guard, operation, rest = re.fullmatch(r"(?:@(!?%p\d+)\s+)?([\w.]+)\s*(.*)", statement, re.DOTALL).groups()  # type: ignore[union-attr]
    return guard or "", operation, [part.strip() for part in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]])+", rest)]


def _members(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{} ").split(",")]


class Warp:
    """32 lanes and their registers."""

    def __init__(
        self, program: Program, number: int, shared: Array, special: dict[str, int], parameters: list[int]
    ) -> None:
        self.program, self.shared, self.parameters = program, shared, parameters
        self.registers: dict[str, Array] = {
            "%tid.x": (32 * number + LANES).astype(np.uint32),
            "global_smem": np.zeros(32, np.uint64),
            **{name: np.full(32, value, np.uint32) for name, value in special.items()},
        }

    def steps(self) -> Iterator[bool]:
        """Run; yield at every barrier of the program."""
        at, guard = 0, np.ones(32, bool)
        while True:
            predicate, operation, operands = self.program.lines[at]
            at += 1
            guard = np.ones(32, bool)
            if predicate:
                guard = self.registers[predicate.lstrip("!")] ^ predicate.startswith("!")
            name, *kinds = operation.split(".")
            if name == "ret":
                return
            if name == "bra":
                assert guard.all() or not guard.any(), "lanes part ways"
                at = self.program.labels[operands[0]] if guard.any() else at
            elif name == "prefetch":
                continue  # the cache is not there
            elif name == "bar":
                if kinds[0] != "warp":
                    yield True
            else:
                getattr(self, f"_{name}", self._arithmetic)(name, kinds, operands, guard)

    def _value(self, operand: str, bits: int = 32) -> Array:
        """Return a register, or a number in as many bits."""
        if operand in self.registers:
            value = self.registers[operand]
            return value if bits == 1 else value.astype(UNSIGNED[bits], copy=False)
        if operand.startswith("0f"):
            return np.full(32, int(operand[2:], 16), np.uint32)
        if operand.startswith("%"):  # half of a pair that nothing has set: NaN, should anybody look at it
            return np.full(32, UNSIGNED[bits](-1 % (1 << bits)))
        number = int(operand.rstrip("U"), 0)
        return np.full(32, bool(number)) if bits == 1 else np.full(32, number % (1 << bits), UNSIGNED[bits])

    def _set(self, register: str, value: Array, guard: Array) -> None:
        if register != "_":
            old = self.registers.get(register, np.zeros_like(value))
            self.registers[register] = np.where(guard, value, old)

    def _addresses(self, operand: str) -> Array:
        base, offset = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand).groups()  # type: ignore[union-attr]
        return self._value(base, 64).astype(np.int64) + int(offset or 0)

    def _mov(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        bits = 1 if kinds[0] == "pred" else _bits(kinds[0])
        if o[1].startswith("{"):
            low, high = (self._value(name, 16) for name in _members(o[1]))
            self._set(o[0], _joined(low, high), guard)
        elif o[0].startswith("{"):
            low, high = _members(o[0])
            self._set(low, (self._value(o[1]) & 0xFFFF).astype(np.uint16), guard)
            self._set(high, (self._value(o[1]) >> 16).astype(np.uint16), guard)
        else:
            value = self._value(o[1], bits)
            self._set(o[0], value if bits == 1 else value.astype(UNSIGNED[bits]), guard)

    def _ld(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        bits = _bits(kinds[-1])
        if kinds[0] == "param":
            value = self.parameters[int(re.findall(r"\d+", o[1])[-1])]
            self._set(o[0], np.full(32, value % (1 << bits), UNSIGNED[bits]), guard)
            return
        names, addresses = _members(o[0]), self._addresses(o[1])
        size = len(names) * bits // 8
        data = np.zeros((32, size), np.uint8)
        for lane in LANES[guard]:
            start = int(addresses[lane])
            assert start % size == 0, f"{kinds} from {start}"
            there = self.shared[start : start + size] if kinds[0] == "shared" else ctypes.string_at(start, size)
            data[lane] = np.frombuffer(there, np.uint8)
        for name, value in zip(names, data.view(UNSIGNED[bits]).T, strict=True):
            self._set(name, value.astype(np.uint16) if bits == 8 else value, guard)

    def _st(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        bits, addresses, names = _bits(kinds[-1]), self._addresses(o[0]), _members(o[1])
        values = np.stack([self._value(name, max(16, bits)).astype(UNSIGNED[bits]) for name in names], axis=1)
        data = np.ascontiguousarray(values).view(np.uint8)
        for lane in LANES[guard]:
            start, row = int(addresses[lane]), data[lane]
            assert start % len(row) == 0, f"{kinds} to {start}"
            if kinds[0] == "shared":
                self.shared[start : start + len(row)] = row
            else:
                ctypes.memmove(start, row.tobytes(), len(row))

    def _ldmatrix(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        addresses = self._addresses(o[1])
        for i, name in enumerate(_members(o[0])):
            rows = [self.shared[start : start + 16].view(np.uint16) for start in addresses[8 * i : 8 * i + 8]]
            matrix = np.stack(rows).T if "trans" in kinds else np.stack(rows)
            low, high = (matrix[LANES // 4, 2 * (LANES % 4) + odd] for odd in (0, 1))
            self._set(name, _joined(low, high), guard)

    def _stmatrix(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        addresses = self._addresses(o[0])
        for i, name in enumerate(_members(o[1])):
            matrix = np.zeros((8, 8), np.uint16)
            for odd, half in enumerate(_halves(self._value(name))):
                matrix[LANES // 4, 2 * (LANES % 4) + odd] = half.view(np.uint16)
            for row, start in zip(matrix.T if "trans" in kinds else matrix, addresses[8 * i : 8 * i + 8], strict=True):
                self.shared[start : start + 16] = np.ascontiguousarray(row).view(np.uint8)

    def _mma(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        shape, operands = kinds[2], kinds[6]
        assert (shape, operands) in (("m16n8k16", "f16"), ("m16n8k16", "bf16"), ("m16n8k8", "tf32")), kinds
        result, a, b, c = map(_members, o)
        depth = int(shape[6:])
        x, y, z = np.zeros((16, depth), np.float32), np.zeros((depth, 8), np.float32), np.zeros((16, 8), np.float32)
        group, within = LANES // 4, 2 * (LANES % 4)
        for i, name in enumerate(a):
            for at, value in self._along(name, operands):
                x[group + 8 * (i % 2), at + depth // 2 * (i // 2)] = value
        for i, name in enumerate(b):
            for at, value in self._along(name, operands):
                y[at + depth // 2 * i, group] = value
        for i, name in enumerate(c):
            z[group + 8 * (i // 2), within + i % 2] = _f32(self._value(name))
        z = x @ y + z
        for i, name in enumerate(result):
            self._set(name, z[group + 8 * (i // 2), within + i % 2].view(np.uint32), guard)

    def _along(self, name: str, operands: str) -> list[tuple[Array, Array]]:
        """Return what a lane's register holds of an operand's row, and where in half of it."""
        value = self._value(name)
        if operands == "tf32":  # the hardware cuts
            return [(LANES % 4, _f32(value & np.uint32(0xFFFFE000)))]
        return [(2 * (LANES % 4) + odd, half) for odd, half in enumerate(_halves(value, operands))]

    def _shfl(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        assert int(o[3], 0) == 31
        other = self._value(o[2]).astype(np.int64)
        source = {"idx": other % 32, "bfly": LANES ^ other}[kinds[1]]
        self._set(o[0].split("|")[0], self._value(o[1])[source], guard)

    def _prmt(self, _: str, __: list[str], o: list[str], guard: Array) -> None:
        pool = np.stack([self._value(o[1]), self._value(o[2])], axis=1).view(np.uint8)
        places, out = self._value(o[3]), np.zeros((32, 4), np.uint8)
        for i in range(4):
            place = (places >> (4 * i)) & 15
            byte = pool[LANES, place & 7]
            out[:, i] = np.where(place & 8, np.where(byte & 128, 255, 0), byte)
        self._set(o[0], out.view(np.uint32)[:, 0], guard)

    def _setp(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        bits = _bits(kinds[1])
        x, y = (self._typed(self._value(name, bits), kinds[1]) for name in o[1:3])
        self._set(o[0], COMPARED[kinds[0]](x, y), guard)

    def _selp(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        x, y = (self._value(name, _bits(kinds[0])) for name in o[1:3])
        self._set(o[0], np.where(self.registers[o[3]], x, y), guard)

    def _bfe(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        x, start, length = (self._value(name).astype(np.int64) for name in o[1:])
        field = (x >> start) & ((1 << length) - 1)
        if kinds[0] == "s32":
            field = np.where((field >> (length - 1)) & 1, field - (1 << length), field)
        self._set(o[0], (field & 0xFFFFFFFF).astype(np.uint32), guard)

    def _cvt(self, _: str, kinds: list[str], o: list[str], guard: Array) -> None:
        to, source = kinds[-2:]
        if (to, source) == ("f32", "f32"):
            assert kinds[0] == "rmi", kinds
            self._set(o[0], np.floor(_f32(self._value(o[1]))).view(np.uint32), guard)
        elif to == "tf32":
            assert kinds[0] == "rna", kinds
            self._set(o[0], (self._value(o[1]) + np.uint32(0x1000)) & np.uint32(0xFFFFE000), guard)
        elif source == "f32":
            given = [self._value(name) for name in o[:0:-1]]
            rounded = [
                _bfloat16(x) if to.startswith("b") else _f32(x).astype(np.float16).view(np.uint16) for x in given
            ]
            self._set(o[0], _joined(*rounded) if to.endswith("x2") else rounded[0], guard)
        elif to == "f32" and source in ("s32", "u32"):
            self._set(o[0], self._typed(self._value(o[1]), source).astype(np.float32).view(np.uint32), guard)
        elif to == "f32":
            assert source in ("f16", "bf16"), f"from {source}"
            x = self._value(o[1], 16)
            wide = x.astype(np.uint32) << 16 if source == "bf16" else x.view(np.float16).astype(np.float32)
            self._set(o[0], wide.view(np.uint32), guard)
        else:
            x = self._typed(self._value(o[1], _bits(source)), source)
            self._set(o[0], x.astype(np.int64).view(np.uint64).astype(UNSIGNED[_bits(to)]), guard)

    @staticmethod
    def _typed(x: Array, kind: str) -> Array:
        """Return registers as the numbers that an operation takes them for."""
        if kind == "f32":
            return _f32(x)
        return x.view(SIGNED[_bits(kind)]) if kind.startswith("s") else x

    def _arithmetic(self, name: str, kinds: list[str], o: list[str], guard: Array) -> None:
        kind = kinds[-1]
        if kind == "pred":
            self._set(o[0], WHOLE[name](*(self._value(x, 1) for x in o[1:])), guard)
        elif kind == "f32":
            result = FLOAT[name](*(_f32(self._value(x)) for x in o[1:]))
            self._set(o[0], result.astype(np.float32).view(np.uint32), guard)
        elif kind == "f16":
            result = FLOAT[name](*(self._value(x, 16).view(np.float16) for x in o[1:]))
            self._set(o[0], result.astype(np.float16).view(np.uint16), guard)
        elif kind.endswith("x2"):
            single = kind.removesuffix("x2")
            of, halves = WHOLE if single[0] in "su" else FLOAT, (_halves(self._value(x), single) for x in o[1:])
            low, high = (of[name](*half) for half in zip(*halves, strict=True))
            if single == "bf16":
                low, high = (_bfloat16(half.astype(np.float32).view(np.uint32)) for half in (low, high))
            elif single == "f16":
                low, high = low.astype(np.float16), high.astype(np.float16)
            self._set(o[0], _joined(low, high), guard)
        elif name in ("shl", "shr"):
            x, by = self._typed(self._value(o[1], _bits(kind)), kind), self._value(o[2])
            shifted = (np.left_shift if name == "shl" else np.right_shift)(x, by.astype(x.dtype))
            self._set(o[0], shifted.view(UNSIGNED[_bits(kind)]), guard)
        elif kinds[0] == "wide":
            bits, whole = _bits(kind), UNSIGNED[2 * _bits(kind)]
            x, y = (self._typed(self._value(x, bits), kind).astype(np.int64).astype(whole) for x in o[1:3])
            self._set(o[0], WHOLE[name](x, y, *(self._value(z, 2 * bits) for z in o[3:])), guard)
        elif kinds[0] == "hi":
            bits = _bits(kind)
            assert name == "mul" and bits <= 32, (name, kind)
            x, y = (self._typed(self._value(x, bits), kind).astype(np.int64) for x in o[1:3])
            self._set(o[0], ((x * y) >> bits).astype(UNSIGNED[bits]), guard)
        else:
            bits = _bits(kind)
            given = (self._typed(self._value(x, bits), kind) for x in o[1:])
            self._set(o[0], WHOLE[name](*given).view(UNSIGNED[bits]), guard)
