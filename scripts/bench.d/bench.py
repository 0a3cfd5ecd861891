"""The measuring part of scripts/bench, which says how it is used.

Every contender is a process that is kept and answers commands; in a round each
has its turn, alone, beginning with another one each round. A turn's number is
the median call. What is compared is compared within a round first: the ratios
below are medians over rounds of one round's ratio. A machine that others use
is slow for seconds or minutes, so turns are short and rounds many; where a
turn is long (Beam Python), Linnet takes one before each of them.
"""
import argparse
import datetime
import glob
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

from weights import STEPS, WINDOWS, Model

LINES = WINDOWS * STEPS
TOLERANCE = 1e-4  # of probabilities in float32
SHORT = 5         # rounds of parts model and table to one of part end
ALONE = 'model beside end'  # the part of Linnet's network timed there
AVX2 = {'LINNET_ISA': 'madd', 'ATEN_CPU_CAPABILITY': 'avx2', 'ONEDNN_MAX_CPU_ISA': 'AVX2', 'MKL_ENABLE_INSTRUCTIONS': 'AVX2',
        'NPY_DISABLE_CPU_FEATURES': 'AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR'}
PEERS = {'torch': 'PyTorch', 'onnxruntime': 'ONNX Runtime', 'openvino': 'OpenVINO'}
HERE = pathlib.Path(__file__).parent
median = statistics.median


def stay_on(core):
    """Keeps a process that is about to run on one of the cores, where the system can."""
    if not hasattr(os, 'sched_setaffinity'):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return lambda: os.sched_setaffinity(0, {cores[core % len(cores)]})


class Process:
    """A contender's process: a line in, a line of JSON out."""

    def __init__(self, command, **env):
        self.command = command[:2]
        self.process = subprocess.Popen(command, env=dict(os.environ, **env), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.hello = self.read()

    def send(self, *words):
        self.process.stdin.write(' '.join(map(str, words)) + '\n')
        self.process.stdin.flush()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit('bench: %s ended; run it alone to see why' % ' '.join(map(str, self.command)))
        return json.loads(line)

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def lives(self, *words):
        """Whether it answers; it is closed then."""
        self.send(*words)
        line = self.process.stdout.readline()
        self.close()
        return bool(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def together(processes, *words):
    """Lines a second of processes at once, at their median and their best call."""
    for p in processes:
        p.send(*words)
    answers = [p.read() for p in processes]
    return sum(LINES / a['median'] for a in answers), sum(LINES / a['min'] for a in answers)


class Bench:
    def __init__(self, args):
        self.args, self.temp = args, pathlib.Path(args.temp)
        self.cores = os.cpu_count()
        self.out = []      # lines of the report
        self.raw = []      # one dict a measurement
        self.held = []     # what must hold
        self.rates = {}    # (part, contender, threads) -> round -> (rate, best)
        self.servers = {}  # (hidden, precision or contender) -> Linnet

    def say(self, line=''):
        print(line, flush=True)
        self.out.append(line)

    def record(self, part, name, threads, round_, rate, best):
        self.raw.append(dict(part=part, contender=name, threads=threads, round=round_, rate=round(rate, 3), best=round(best, 3)))
        self.rates.setdefault((part, name, threads), []).append((rate, best))

    def rate(self, part, name, threads):
        return median(r for r, _ in self.rates[part, name, threads])

    def ratio(self, a, b):
        """The rate of a by that of b, each a part, a contender and threads."""
        return median(one / other for (one, _), (other, _) in zip(self.rates[a], self.rates[b]))

    def times(self, part, name, threads):
        """Linnet's rate by another's."""
        return self.ratio((part, 'Linnet', threads), (part, name, threads))

    def fastest(self, part, threads):
        return max((k[1] for k in self.rates if k[0] == part and k[2] == threads and not k[1].startswith('Linnet')),
                   key=lambda name: self.rate(part, name, threads))

    def must(self, what, value, bound):
        self.held.append((what, value, bound))

    # Preparation

    def linnet(self, *args):
        return json.loads(subprocess.run([self.temp / 'linnet', *map(str, args)], check=True, text=True, stdout=subprocess.PIPE).stdout)

    def prepare(self):
        self.made = self.linnet('models', self.temp / 'models')
        corpus = sorted(glob.glob(os.path.join(os.environ['LINNET_CORPUS'], '**', '*.txt.ann'), recursive=True))
        files = corpus or sorted(glob.glob('testdata/sample/*.txt') + glob.glob('testdata/annotated/*.txt.ann'))
        random.Random(1).shuffle(files)  # long and short ones mixed
        self.text_source = 'the annotated corpus' if corpus else 'testdata'
        self.texts = {name: self.linnet('texts', self.temp / name, lines, *files)
                      for name, lines in (('some', 20 * LINES), ('few', self.args.lines // 10), ('many', self.args.lines))}
        self.models = {int(h): self.temp / 'models' / h for h in sorted(self.made, key=int)}
        self.bundled = next(int(h) for h, what in self.made.items() if what == 'the bundled model')
        self.loaded = {h: Model(folder) for h, folder in self.models.items()}

    def environment(self):
        cpu = platform.processor()
        flags = ''
        if os.path.exists('/proc/cpuinfo'):
            info = pathlib.Path('/proc/cpuinfo').read_text()
            cpu = re.search(r'model name\s*: (.*)', info).group(1) if 'model name' in info else cpu
            flags = re.search(r'flags\s*: (.*)', info).group(1) if 'flags\t' in info else ''
        if self.args.avx2:
            flags = re.sub(r' (avx512|amx)\w*', '', flags)
        self.amx = ' amx_bf16' in flags
        vnni = ' avx512_vnni' in flags
        # Multiply-adds of float32: LINNET_ISA
        self.plain = 'avx512' if ' avx512f' in flags else 'avx2' if ' avx2' in flags else None
        # Linnet's other ways to compute: name -> LINNET_ISA
        self.others = {'Linnet, ' + self.plain: self.plain} if self.amx or vnni or self.plain == 'avx2' else {}
        if self.amx:
            self.others['Linnet, amx24'] = 'amx24'
        # What to hold to the peers' bfloat16, name -> LINNET_ISA, where they have it
        self.half = 'amx8' if self.amx else 'vnni8' if vnni and ' avx512_bf16' in flags else None
        go = subprocess.run(['go', 'version'], check=True, text=True, stdout=subprocess.PIPE).stdout.split()[2]
        packages = 'torch', 'onnxruntime', 'openvino', 'apache-beam', 'numpy'
        self.say('commit %s, %s' % (self.args.commit, datetime.date.today()))
        self.say('%s, %d cores%s; %s' % (cpu, self.cores, ', with AMX' if self.amx else '', platform.system()))
        self.say('%s, Python %s, %s' % (go, platform.python_version(), ', '.join('%s %s' % (p, importlib.metadata.version(p)) for p in packages)))
        self.say('load before the run: %.1f' % os.getloadavg()[0])
        if self.args.avx2:
            self.say('AVX2 alone: by the environment; ONNX Runtime by a copy whose look at XCR0 finds no AVX-512')
        self.say('texts: %s; %s' % (self.text_source, '; '.join('H=%d: %s' % (h, self.made[str(h)]) for h in self.models)))

    def start(self):
        """The processes of parts model and table; each peer once a core."""
        temp, isas = self.temp, {'float32': os.environ.get('LINNET_ISA', '')}
        if self.half:
            isas['bfloat16'] = self.half
        self.servers = {(h, p): Process([temp / 'linnet', 'serve', self.models[h], temp / 'some'], LINNET_ISA=isa)
                        for h in self.models for p, isa in {**isas, **self.others}.items()}
        self.say('Linnet without LINNET_ISA: %s' % self.servers[96, 'float32'].hello['isa'])
        self.fma = next(iter(self.others), 'Linnet')  # the one to compare with multiply-adds
        pairs = []
        for h in self.models:
            dump = temp / ('batch%d' % h)
            self.servers[h, self.fma if self.others else 'float32'].ask('dump', dump)
            pairs += [self.models[h], dump]
        def start(peer, **env):
            return Process([sys.executable, HERE / 'peers.py', peer, *pairs], **env)

        def multiply(**env):
            """The peers that multiply in bfloat16 and do not end of it."""
            return [peer for peer in ('torch', 'openvino') if start(peer, **env).lives('check', 'x', 96, 'bfloat16')]
        tiles, env = multiply() if self.half else [], {}
        if self.amx and len(tiles) < 2 and (preload := self.shown_tiles()):
            env = {'LD_PRELOAD': str(preload)}
            tiles = multiply(**env)
            self.say('CPUID hides the tiles; the peers are told of them by tiles.c')
        if self.half and len(tiles) < 2:
            self.say('no bfloat16 of %s: it ended' % ', '.join(PEERS[p] for p in ('torch', 'openvino') if p not in tiles))
        if self.args.avx2:
            env = {'PYTHONPATH': '%s:%s' % (self.onnxruntime_avx2(), os.environ['PYTHONPATH'])}
        self.peers = {peer: [start(peer, **env) for _ in range(self.cores)] for peer in PEERS}
        # (part, precision) -> peers
        self.have = {('x', 'float32'): list(PEERS), ('table', 'float32'): ['torch']}
        if tiles:
            self.have['x', 'bfloat16'] = tiles

    def shown_tiles(self):
        """tiles.c, built, or None where there is no C compiler."""
        out = self.temp / 'tiles.so'
        try:
            subprocess.run(['cc', '-O2', '-shared', '-fPIC', '-o', out, HERE / 'tiles.c'], check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as e:
            self.say('tiles.c was not built: %s' % e)
            return None
        return out

    def onnxruntime_avx2(self):
        """A folder with a copy of ONNX Runtime, which no setting keeps from AVX-512."""
        look = bytes.fromhex('0f01d0 89c0 48c1e220 4809c2')      # xgetbv; mov eax, eax; shl rdx, 32; or rdx, rax
        mask = bytes.fromhex('0f01d0 83e007 89c2 0f1f4000')      # xgetbv; and eax, 7;   mov edx, eax; nop
        package = pathlib.Path(importlib.util.find_spec('onnxruntime').origin).parent
        folder = self.temp / 'avx2'
        shutil.copytree(package, folder / package.name)
        for library in (folder / package.name / 'capi').glob('onnxruntime_pybind11_state*.so'):
            code = library.read_bytes()
            if look not in code:
                sys.exit('bench: this version of ONNX Runtime looks for AVX-512 in another way; change onnxruntime_avx2 in bench.py')
            library.write_bytes(code.replace(look, mask))
        return folder

    def check(self):
        self.say('\nFurthest probability from Linnet\'s in float32, and lines with the same label')
        for (what, precision), peers in self.have.items():
            for h in self.models:
                for peer in peers:
                    got = self.peers[peer][0].ask('check', what, h, precision)
                    self.raw.append(dict(part='check', what=what, hidden=h, precision=precision, contender=peer, **got))
                    self.say('  H=%-3d %-8s %-12s %-5s %.1e  %7.3f %%' % (h, precision, PEERS[peer], what, got['furthest'], 100 * got['same_labels']))
                    if precision == 'float32' and not got['furthest'] <= TOLERANCE:
                        sys.exit('bench: %s does not say what Linnet says' % PEERS[peer])

    # Parts model and table

    def peak(self, round_):
        """GFLOP/s of a loop of multiply-adds, on one core and on each at once.

        Two processes would share a core for all of a short turn, now and then.
        """
        command = [self.temp / 'kernel.test', '-test.run=^$', '-test.bench=^BenchmarkPeak$/^%s$' % self.plain,
                   '-test.benchtime=%gs' % self.args.seconds, '-test.cpu=1']
        for threads in sorted({1, self.cores}):
            running = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE, preexec_fn=stay_on(i) if threads > 1 else None)
                       for i in range(threads)]
            found = [re.search(r'([\d.]+) GFLOP/s\s+([\d.]+) best', p.communicate()[0]) for p in running]
            if not all(found):
                return  # no such loop for this instruction set
            self.record('peak', 'FMA loop', threads, round_, sum(float(f[1]) for f in found), sum(float(f[2]) for f in found))

    def network(self, parts):
        """Rounds of what goes through Score, with and without the table."""
        turns = []
        for (what, precision), peers in self.have.items():
            if what not in parts:
                continue
            for h in self.models:
                part = what, h, precision
                for threads in sorted({1, self.cores}):
                    turns.append((part, 'Linnet', threads, [self.servers[h, precision]], ('time', what, threads)))
                    for other in self.others if precision == 'float32' else ():
                        turns.append((part, other, threads, [self.servers[h, other]], ('time', what, threads)))
                    for peer in peers:
                        turns.append((part, PEERS[peer], threads, self.peers[peer][:1], ('time', what, h, precision, threads)))
                        if threads > 1:
                            turns.append((part, '%s × %d' % (PEERS[peer], threads), threads, self.peers[peer], ('time', what, h, precision, 1)))
        for part, name, threads, processes, words in turns:
            together(processes, *words, 0.02)  # warm
        rounds = SHORT * self.args.rounds
        for round_ in range(rounds):
            self.peak(round_)
            shift = round_ * len(turns) // rounds
            for part, name, threads, processes, words in turns[shift:] + turns[:shift]:
                time.sleep(0.02)  # for the threads of the one before to fall asleep
                self.record(part, name, threads, round_, *together(processes, *words, self.args.seconds))
        for (what, precision) in self.have:
            for h in self.models:
                if what in parts:
                    self.show(what, h, precision)
        if ('peak', 'FMA loop', 1) in self.rates:
            peak = {t: [r for r, _ in self.rates['peak', 'FMA loop', t]] for t in {1, self.cores}}
            self.say('\nFMA loop, %s: %s' % (self.plain, '; '.join('%d thread%s %.0f GFLOP/s (best %.0f)' % (
                t, 's' * (t > 1), median(peak[t]), max(b for _, b in self.rates['peak', 'FMA loop', t])) for t in sorted(peak))))

    def show(self, what, h, precision):
        part = what, h, precision
        flop = self.loaded[h].flop()
        title = 'Model only, line vectors given' if what == 'x' else 'With the table in front, %.0f ids a line' % self.servers[h, precision].hello['ids_per_line']
        self.say('\n%s: T=%d, B=%d, D=%d, H=%d, bidirectional, %s' % (title, STEPS, WINDOWS, self.loaded[h].d, h, precision))
        self.say('  %-18s %8s %12s %12s %9s %9s %10s' % ('', 'threads', 'lines/s', 'best', 'GFLOP/s', 'of peak', 'Linnet is'))
        rows = [k for k in self.rates if k[0] == part]
        for _, name, threads in sorted(rows, key=lambda k: (k[2], not k[1].startswith('Linnet'), k[1])):
            rates = [r for r, _ in self.rates[part, name, threads]]
            share = self.share(part, name, threads, flop) if precision == 'float32' else None
            times = '' if name.startswith('Linnet') else '%.2f ×' % self.times(part, name, threads)
            self.say('  %-18s %8d %12s %12s %9.1f %9s %10s' % (
                name, threads, f'{median(rates):,.0f}', f'{max(b for _, b in self.rates[part, name, threads]):,.0f}',
                median(rates) * flop / 1e9, '' if share is None else '%.0f %%' % (100 * share), times))
        peer = self.fastest(part, 1)
        title = 'H=%d, %s, 1 thread: Linnet by %s' % (h, precision, peer)
        if what == 'table':
            if h == 96:
                self.must('table in front, ' + title, self.times(part, peer, 1), 2.5)
        elif h in (96, 256) and (precision == 'float32' or self.amx):
            self.must('model only, ' + title, self.times(part, peer, 1), {('float32', 96): 1.7, ('float32', 256): 1.35, ('bfloat16', 96): 1.5, ('bfloat16', 256): 2.0}[precision, h])
            share = self.share(part, self.fma, 1, flop) if precision == 'float32' else None
            if share is not None:
                self.must('model only, H=%d, float32, 1 thread: share of the FMA peak' % h, share, {96: .65, 256: .75}[h])

    def share(self, part, name, threads, flop):
        peak = self.rates.get(('peak', 'FMA loop', threads))
        if not peak:
            return None
        return median(r * flop / 1e9 / p for (r, _), (p, _) in zip(self.rates[part, name, threads], peak))

    # Part end

    def end(self):
        cores, temp = self.cores, self.temp
        model = self.models[self.bundled]

        def predict(texts, out, threads, **env):
            begin = time.perf_counter()
            subprocess.run([temp / 'predict', '--runner=direct', '--verbosity=0', '--input', temp / texts, '--output', out, '--model_uri', model],
                           check=True, env=dict(os.environ, GOMAXPROCS=str(threads), **env))
            return time.perf_counter() - begin

        def python(texts, out, workers, threads):
            done = subprocess.run([sys.executable, HERE / 'beam_peer.py', temp / texts, out, model, str(workers), str(threads)],
                                  check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
            return json.loads(done.stdout.splitlines()[-1])['seconds']
        both = sorted({1, cores})
        names = ['Linnet', *self.others][:2]
        own = [(name, n, lambda t, o, n=n, isa=self.others.get(name): predict(t, o, n, **{'LINNET_ISA': isa} if isa else {})) for name in names for n in both]
        peers = [('Beam Python', n, lambda t, o, n=n: python(t, o, 1, n)) for n in both]
        if cores > 1:
            peers.append(('Beam Python × %d' % cores, cores, lambda t, o: python(t, o, cores, 1)))
        count = {t: self.texts[t]['lines'] for t in ('few', 'many')}
        equal = None
        # Every turn has folders of its own. On a disk none is deleted before the end,
        # as making files soon after many were deleted is slow on ext4; in memory a
        # contender's last goes, as a virtual machine's first touch of memory is slow.
        number, latest = 0, {}
        in_memory = subprocess.run(['stat', '-f', '-c', '%T', temp], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout == 'tmpfs\n'
        for round_ in range(self.args.rounds):
            shift = round_ % len(peers)
            found = {}  # (part, contender, threads) -> rates of this round
            for peer in peers[shift:] + peers[:shift]:
                for name, threads, run in [*own, peer]:
                    seconds = {}
                    for texts in ('few', 'many'):
                        number += 1
                        if in_memory and name in latest:
                            shutil.rmtree(latest[name])
                        latest[name] = out = temp / 'out' / str(number)
                        seconds[texts] = run(texts, out)
                        time.sleep(0.1)
                    found.setdefault(('end', name, threads), []).append(count['many'] / seconds['many'])
                    found.setdefault(('end without start-up', name, threads), []).append((count['many'] - count['few']) / (seconds['many'] - seconds['few']))
                    if name in names and self.servers:  # the network alone, right behind
                        server = self.servers[self.bundled, name if name in self.others else 'float32']
                        rate, _ = together([server], 'time', 'x', threads, SHORT * self.args.seconds)
                        found.setdefault((ALONE, name, threads), []).append(rate)
            for (part, name, threads), rates in found.items():
                self.record(part, name, threads, round_, median(rates), max(rates))
            if equal is None:
                equal = self.same_files(latest['Linnet'], latest['Beam Python'])
                if equal[0] < 0.9 * equal[1]:  # a label may differ where two are equally probable
                    sys.exit('bench: only %d of %d labelled files of Beam Python are those of Linnet' % equal)
        t = self.texts['many']
        self.say('\nEnd to end, %s lines in %s files (%.0f MB)%s to YEDDA, H=%d, float32; %d of %d outputs are equal' % (
            f'{t["lines"]:,}', f'{t["documents"]:,}', t['bytes'] / 1e6, ' in memory' if in_memory else '', self.bundled, *equal))
        self.say('  %-18s %8s %12s %18s %10s %16s' % ('', 'threads', 'lines/s', 'without start-up', 'Linnet is', 'network alone'))
        for _, name, threads in sorted((k for k in self.rates if k[0] == 'end'), key=lambda k: (k[2], not k[1].startswith('Linnet'), k[1])):
            times = '' if name.startswith('Linnet') else '%.1f ×' % self.times('end without start-up', name, threads)
            alone = f'{self.rate(ALONE, name, threads):,.0f}' if (ALONE, name, threads) in self.rates else ''
            self.say('  %-18s %8d %12s %18s %10s %16s' % (name, threads, f'{self.rate("end", name, threads):,.0f}',
                                                          f'{self.rate("end without start-up", name, threads):,.0f}', times, alone))
        self.say('  (the whole process of Linnet; of Beam Python the run without imports; without start-up: by the difference to a tenth of the lines;')
        self.say('  the network alone: model only as above, right behind each of these runs)')
        peer = self.fastest('end without start-up', cores)
        self.must('end to end, all cores: Linnet by %s' % peer, self.times('end without start-up', peer, cores), 20)
        for name in names:
            if (ALONE, name, cores) in self.rates:
                self.must('end to end, all cores: share of the model-only rate' + name.removeprefix('Linnet'),
                          self.ratio(('end without start-up', name, cores), (ALONE, name, cores)), .6)
        if cores > 1 and ('peak', 'FMA loop', cores) in self.rates:
            fma = self.ratio(('peak', 'FMA loop', cores), ('peak', 'FMA loop', 1))
            for what, part in ('end to end', 'end without start-up'), ('model only', ('x', 96, 'float32')):
                if (part, 'Linnet', cores) in self.rates:
                    self.must('%d cores by one, as a share of the FMA loop\'s %.2f: %s' % (cores, fma, what),
                              self.ratio((part, 'Linnet', cores), (part, 'Linnet', 1)) / fma, .9)

    def same_files(self, a, b):
        names = [p.name for p in sorted(a.glob('*.ann'))]
        same = sum((a / n).read_bytes() == (b / n).read_bytes() for n in names)
        return same, len(names)

    def run(self):
        wanted = {{'model': 'x'}.get(p, p) for p in self.args.parts.split(',')}
        if wanted - {'x', 'table', 'end'}:
            sys.exit('bench: --parts=%s: there are model, table and end' % self.args.parts)
        begin = time.perf_counter()
        self.prepare()
        self.environment()
        if wanted & {'x', 'table'}:
            self.start()
            self.check()
            self.network(wanted)
            for processes in self.peers.values():
                for p in processes:
                    p.close()
        if 'end' in wanted:
            self.end()
        for p in self.servers.values():
            p.close()
        self.say('\nTo hold (of this run: %d rounds, of the network %d, %.0f s)' % (self.args.rounds, SHORT * self.args.rounds, time.perf_counter() - begin))
        for what, value, bound in self.held:
            self.say('  %-4s %6.2f of %-5g %s' % ('yes' if value >= bound else 'NO', value, bound, what))
        if self.amx and 'x' in wanted and ('x', 'bfloat16') not in self.have:
            self.say('  not measured: model only, bfloat16, H=96 (of 1.5) and H=256 (of 2)')
        self.say('load after the run: %.1f' % os.getloadavg()[0])
        path = pathlib.Path(self.args.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, 'w') as f:
            f.write('\n'.join(self.out) + '\n\nRaw numbers: lines/s (of the FMA loop GFLOP/s) of the median and of the best call of a turn\n')
            f.writelines(json.dumps(r) + '\n' for r in self.raw)
        print('written to', self.args.out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--temp', required=True)
    p.add_argument('--commit', required=True)
    p.add_argument('--out', required=True)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--seconds', type=float, default=0.1)
    p.add_argument('--lines', type=int, default=1_000_000)
    p.add_argument('--parts', default='model,table,end')
    p.add_argument('--avx2', action='store_true')
    args = p.parse_args()
    if args.avx2:
        os.environ.update(AVX2)
    Bench(args).run()


if __name__ == '__main__':
    main()
