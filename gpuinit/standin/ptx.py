#!/usr/bin/env python3
"""Usage: ptx.py FILE.ptx… > kernels.cpp

Translates PTX into C++, instruction by instruction, for scripts/standin: each
kernel becomes a function that a CUDA thread runs, on what ptx.h has of the
machine. It knows the instructions that model/cuda's kernels consist of and
fails at any other, with its line. Semantics are those of NVIDIA's "Parallel
Thread Execution ISA".
"""
import os
import re
import sys

TYPES = {"pred": "bool", "f32": "float"}
for bits in 8, 16, 32, 64:
    TYPES.update({"s%d" % bits: "int%d_t" % bits, "u%d" % bits: "uint%d_t" % bits, "b%d" % bits: "uint%d_t" % bits})
REGISTERS = {"pred": "bool", "f32": "float", "f16": "uint16_t", "b16": "uint16_t", "b32": "uint32_t", "b64": "uint64_t"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNORDERED = {"ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}
BITWISE = {"and": "&", "or": "|", "xor": "^"}
ARITHMETIC = {"add": "+", "sub": "-"}


def split(operands):
    """Operands at the commas outside of braces and brackets."""
    return [o.strip() for o in re.findall(r"(?:\{[^}]*\}|\[[^]]*\]|[^,])+", operands)]


def vector(operand):
    return split(operand[1:-1]) if operand.startswith("{") else [operand]


class Kernel:
    """One .entry of a PTX file."""

    def __init__(self, name, params):
        self.name, self.params, self.at, self.bytes = name, params, {}, 0  # where shared arrays begin, bytes of all
        self.registers, self.code, self.most = [], [], 1024

    def share(self, align, name, size):
        begin = -(-self.bytes // align) * align
        self.at[name], self.bytes = begin, begin + size

    def value(self, operand, type):
        """The C++ of a source operand as a type of PTX."""
        c = TYPES[type]
        if m := re.fullmatch(r"%(n?tid|n?ctaid)\.([xyz])", operand):
            return "as<%s>(s.%s.%s)" % (c, m[1], m[2])
        if m := re.fullmatch(r"0[fF]([0-9A-Fa-f]{8})", operand):
            return "as<%s>(0x%su)" % (c, m[1])
        if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", operand):
            return "(%s)%sll" % (c, operand)
        if operand in self.at:
            return "(%s)%du" % (c, self.at[operand])
        return "as<%s>(%s)" % (c, self.register(operand))

    def register(self, operand):
        if not re.fullmatch(r"%[a-z]+\d+|low|high", operand):
            raise ValueError("operand " + operand)
        return operand.lstrip("%")

    def address(self, operand):
        m = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", operand)
        return "%s + %sll" % (self.value(m[1], "u64"), m[2] or 0)

    def instruction(self, op, operands, line):
        """The C++ of an instruction."""
        parts, o = op.split("."), split(operands)
        name, type = parts[0], parts[-1]
        c = TYPES.get(type)
        wide = "u" + type[1:] if type[0] == "s" else type  # arithmetic wraps
        put = lambda e: "%s = as<decltype(%s)>(%s);" % (self.register(o[0]), self.register(o[0]), e)
        get = lambda i, t=type: self.value(o[i], t)
        results = lambda i, e: "auto v = %s; " % e + " ".join("{0} = as<decltype({0})>(v[{1}]);".format(self.register(r), n) for n, r in enumerate(vector(o[i])))
        values = lambda i: ", ".join(self.register(r) for r in vector(o[i]))
        if op in ("ret", "exit"):
            return "return;"
        if name == "bra":
            return "goto %s;" % o[0].lstrip("$")
        if op == "bar.sync" and o == ["0"]:
            return "s.barrier(%d);" % line
        if op == "bar.warp.sync":
            return "s.warp_barrier(%d, %s);" % (line, get(0, "u32"))
        if op == "mov.b32" or name == "mov" and "{" not in operands:
            to, of = vector(o[0]), vector(o[1])
            if len(to) == 2:
                return "".join("%s = (uint16_t)(%s >> %d); " % (self.register(r), self.value(o[1], type), 16 * i) for i, r in enumerate(to))
            if len(of) == 2:
                return put("(uint32_t)%s | (uint32_t)%s << 16" % tuple(r if r == "0" else self.register(r) for r in of))
            return put(get(1))
        if op in ("cvta.shared.u64", "cvta.to.global.u64"):
            return put("generic(%s)" % get(1) if parts[1] == "shared" else get(1))
        if parts[:2] == ["ld", "param"]:
            m = re.fullmatch(r"\[(\w+)\]", o[1])
            return put("param<%s>(params[%d])" % (c, self.params.index(m[1])))
        if name in ("ld", "st"):
            at, regs = (o[1], o[0]) if name == "ld" else (o[0], o[1])
            regs = vector(regs)
            if len(parts) == (4 if len(regs) > 1 else 3) and parts[1] in ("global", "shared"):
                call = "<%s, %d>(%d, %s" % (c, len(regs), line, self.address(at))
                if name == "st":
                    return "s.store_%s%s, {%s});" % (parts[1], call, ", ".join(self.value(r, type) for r in regs))
                return results(0, "s.load_%s%s)" % (parts[1], call))
        if name == "setp" and len(parts) == len(o) == 3:
            if parts[1] in UNORDERED:
                return put("!(%s %s %s)" % (get(1), UNORDERED[parts[1]], get(2)))
            unequal = parts[1] == "ne" and type == "f32"  # false of NaN, other than C's
            return put("%s %s %s%s" % (get(1), COMPARE[parts[1]], get(2), " && %s == %s && %s == %s" % (get(1), get(1), get(2), get(2)) if unequal else ""))
        if name == "selp":
            return put("%s ? %s : %s" % (self.register(o[3]), get(1), get(2)))
        if name in BITWISE:
            return put("(%s)(%s %s %s)" % (c, get(1), BITWISE[name], get(2)))
        if op == "not.pred":
            return put("!%s" % get(1))
        if op in ("not.b32", "not.b64", "not.b16"):
            return put("(%s)~%s" % (c, get(1)))
        if op in ("shl.b32", "shl.b64", "shr.u32", "shr.s32", "shr.u64", "shr.s64", "shr.b32", "shr.b64"):
            return put("%s<%s>(%s, %s)" % (name, c, get(1), get(2, "u32")))
        if op == "bfi.b32":
            return put("bfi(%s, %s, %s, %s)" % tuple(get(i, "u32") for i in range(1, 5)))
        if op == "prmt.b32":
            return put("prmt(%s, %s, %s)" % tuple(get(i, "u32") for i in range(1, 4)))
        if op in ("fma.rn.f32", "fma.rm.f32"):
            return put("fma_%s(%s, %s, %s)" % (parts[1], get(1), get(2), get(3)))
        if op in ("mul.f32", "add.f32", "sub.f32"):
            return put("%s %s %s" % (get(1), {"mul": "*", "add": "+", "sub": "-"}[name], get(2)))
        if op in ("div.rn.f32", "div.approx.f32"):
            return put("div_%s(%s, %s)" % (parts[1], get(1), get(2)))
        if op in ("rcp.rn.f32", "rcp.approx.ftz.f32"):
            return put("1.f / %s" % get(1) if parts[1] == "rn" else "ftz(1.f / ftz(%s))" % get(1))
        if op in ("ex2.approx.f32", "ex2.approx.ftz.f32"):
            return put("exp2f(%s)" % get(1) if "ftz" not in parts else "ftz(exp2f(ftz(%s)))" % get(1))
        if op == "tanh.approx.f32":
            return put("tanh_approx(%s)" % get(1))
        if op == "sqrt.rn.f32":
            return put("sqrtf(%s)" % get(1))
        if op in ("neg.f32", "neg.s32"):
            return put("-%s" % get(1, wide))
        if op == "abs.f32":
            return put("fabsf(%s)" % get(1))
        if op in ("max.f32", "min.f32"):
            return put("f%sf(%s, %s)" % (name, get(1), get(2)))
        if len(parts) == 2 and type[0] in "su":
            if name in ("min", "max"):
                return put("std::%s(%s, %s)" % (name, get(1), get(2)))
            if name in ARITHMETIC:
                return put("%s %s %s" % (get(1, wide), ARITHMETIC[name], get(2, wide)))
            if name in ("div", "rem"):
                return put("%s %s %s" % (get(1), {"div": "/", "rem": "%"}[name], get(2)))
        if parts[:2] == ["mul", "wide"]:
            return put("(%s)%s * (%s)%s" % (TYPES[type[0] + "64"], get(1), TYPES[type[0] + "64"], get(2)))
        if parts[:2] in (["mul", "lo"], ["mad", "lo"]):
            return put("%s * %s%s" % (get(1, wide), get(2, wide), " + " + get(3, wide) if name == "mad" else ""))
        if name == "cvt":
            if op == "cvt.sat.f32.f32":
                return put("fminf(1.f, fmaxf(0.f, %s))" % get(1))
            if op in ("cvt.rn.f16.f32", "cvt.rn.bf16.f32"):
                return put("to_%s(%s)" % (parts[2], get(1)))
            if op == "cvt.rn.f16x2.f32":  # the first operand is the upper half
                return put("(uint32_t)to_f16(%s) << 16 | to_f16(%s)" % (get(1, "f32"), get(2, "f32")))
            if op == "cvt.f32.f16":
                return put("of_f16(%s)" % self.register(o[1]))
            if op in ("cvt.rn.f32.s16", "cvt.rn.f32.s32"):
                return put("(float)%s" % ("(int16_t)" + self.register(o[1]) if type == "s16" else get(1)))
            if len(parts) == 3 and parts[1][0] in "su" and type[0] in "su":
                return put("(%s)(%s)%s" % (TYPES[parts[1]], c, self.register(o[1])))
        if op in ("shfl.sync.bfly.b32", "shfl.sync.idx.b32"):
            to = o[0].split("|")
            there = " %s = true;" % self.register(to[1]) if len(to) > 1 else ""  # the other lane always is
            return "%s = s.shuffle(%d, %s, %s);%s" % (self.register(to[0]), line, "true" if parts[2] == "bfly" else "false", ", ".join(get(i, "u32") for i in range(1, 5)), there)
        if op == "cp.async.cg.shared.global" and o[2] == "16":
            return "s.copy16(%d, %s, %s);" % (line, self.address(o[0]), self.address(o[1]))
        if op == "cp.async.commit_group":
            return "s.copy_commit();"
        if op == "cp.async.wait_group":
            return "s.copy_wait(%s);" % o[0]
        if op == "ldmatrix.sync.aligned.m8n8.x4.shared.b16":
            return results(0, "s.ldmatrix(%d, %s)" % (line, self.address(o[1])))
        if op == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32":
            return results(0, "s.mma(%d, {%s}, {%s}, {%s})" % (line, values(1), values(2), values(3)))
        if op.startswith("wmma.load.") and parts[2] in "ab" and parts[3:7] == ["sync", "aligned", "row", "m16n16k16"] and type in ("f16", "bf16"):
            at = ("generic(%s)" if parts[7] == "shared" else "%s") % self.address(o[1])  # addresses of global memory are generic
            return results(0, "s.wmma_load(%d, %s, %s)" % (line, at, get(2, "u32")))
        if op == "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32":
            return "s.wmma_store(%d, %s, {%s}, %s);" % (line, self.address(o[0]), values(1), get(2, "u32"))
        if op in ("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32", "wmma.mma.sync.aligned.row.row.m16n16k16.f32.bf16.bf16.f32"):
            return results(0, "s.wmma<%s>(%d, {%s}, {%s}, {%s})" % ("of_bf16" if "bf16" in parts else "of_f16", line, values(1), values(2), values(3)))
        raise ValueError("unknown instruction")

    def body(self, text, line):
        """The C++ of the kernel's body, which begins on a line of the file."""
        at = 0
        while m := re.compile(r"\s*(?:([{}])|([\w$]+):|([^;]*);)").match(text, at):
            line += text.count("\n", at, m.start(m.lastindex))
            statement = m[3] and " ".join(m[3].split())
            try:
                if m[1]:
                    self.code.append(m[1])
                elif m[2]:
                    self.code.append(m[2].lstrip("$") + ":;")
                elif r := re.fullmatch(r"\.reg \.(\w+) (.*)", statement):
                    if many := re.fullmatch(r"%(\w+)<(\d+)>", r[2]):
                        self.registers.append("%s %s;" % (REGISTERS[r[1]], ", ".join("%s%d{}" % (many[1], i) for i in range(int(many[2])))))
                    else:
                        self.code.append("%s %s;" % (REGISTERS[r[1]], r[2]))
                elif r := re.fullmatch(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]", statement):
                    self.share(int(r[1]), r[2], int(r[3]))
                elif not statement.startswith(".pragma"):
                    r = re.fullmatch(r"(?:@(!?)%(p\d+) )?([\w.:]+) ?(.*)", statement)
                    self.code.append(("if (%s%s) " % (r[1], r[2]) if r[2] else "") + "{ %s }" % self.instruction(r[3], r[4], line))
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise ValueError("%d: %s: %s" % (line, statement, e))
            line += text.count("\n", m.start(m.lastindex), m.end())
            at = m.end()
        if text[at:].strip():
            raise ValueError("%d: %s" % (line, text[at:].strip()[:80]))

    def source(self):
        return "static void k_%s(Thread &s, void **params) {\n%s\n%s\n}\nstatic const bool added_%s = add(\"%s\", {k_%s, %d, %d, file});\n" % (
            self.name, "\n".join(self.registers), "\n".join(self.code), self.name, self.name, self.name, self.bytes, self.most)


def translate(path):
    ptx = re.sub(r"//[^\n]*", "", open(path).read())
    out = ["static const char file[] = \"%s\";\n" % os.path.basename(path)]
    for name, begin, params, limits, body in [
            (m[1], m.start(4), re.findall(r"\.param [^,]*?(\w+)(?=\s*[,)])", m[2] + ")"), m[3], m[4])
            for m in re.finditer(r"\.entry (\w+)\(([^)]*)\)([^{]*)\{(.*?)^\}", ptx, re.S | re.M)]:
        kernel = Kernel(name, params)
        if most := re.search(r"\.maxntid (\d+), (\d+), (\d+)", limits):
            kernel.most = int(most[1]) * int(most[2]) * int(most[3])
        kernel.body(body, ptx.count("\n", 0, begin) + 1)
        out.append(kernel.source())
    if len(out) - 1 != ptx.count(".entry "):
        raise ValueError("a kernel that is not understood")
    return "namespace %s {\n%s}\n" % (re.sub(r"\W", "_", os.path.basename(path)), "\n".join(out))


def main():
    print('#include "ptx.h"\nusing namespace ptx;\n')
    for path in sys.argv[1:]:
        try:
            print(translate(path))
        except ValueError as e:
            sys.exit("ptx.py: %s:%s" % (path, e))


main()
