"""Holds what scripts, and the README, say to other people's programs against the flags that those know.

Usage: tools.py update               makes tools.txt again from the programs in PATH; the others' lines stay
       tools.py compare              compares tools.txt with the programs in PATH that are of its versions
       tools.py check RECORD README  compares commands with tools.txt: RECORD has one a line, as a shell quotes them

az is of PyPI (azure-cli), sbatch and qsub of Debian (slurm-client, gridengine-client).
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).with_name("tools.txt")
TOOLS = {  # the version's command, the commands that are used, and how each is asked for help
    "gcloud": (["--version"], ["container node-pools create", "compute regions describe"], ["--help"]),
    "aws": (["--version"], ["eks create-nodegroup", "eks describe-nodegroup"], ["help"]),
    "az": (["--version"], ["aks nodepool add"], ["--help"]),
    "kubectl": (
        ["version", "--client"],
        ["apply", "delete", "describe", "events", "get", "label", "logs", "patch", "rollout restart"],
        ["--help"],
    ),
    "docker": (["--version"], ["build", "push", "run", "tag"], ["--help"]),
    "sbatch": (["--version"], [""], ["--help"]),
    "qsub": (["-help"], [""], ["-help"]),
}
FLAG = r"-{1,2}[A-Za-z][\w-]*"


def ask(*command):
    run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode != 0 and not run.stdout:
        raise SystemExit(f"tools.py: {shlex.join(command)}: {run.stderr.strip()}")
    return re.sub(r"\x1b\[[0-9;]*m|.\x08", "", run.stdout)  # bold and underlined by escapes or by overstriking


def section(text, name):
    """The indented lines below a heading."""
    found = re.search(rf"^{name}\n((?:[ \t]+.*\n|\n)*)", text, re.M)
    return found[1] if found else ""


def heads(text, indent):
    """The flags, with their aliases, that lines begin with which are indented by at most so many blanks."""
    flags = set()
    for line in re.findall(rf"^ {{1,{indent}}}\[?({FLAG}.*)", text, re.M):
        while found := re.match(rf"({FLAG})(?:=\S*?(?=,|\s|$))?,? *", line):
            flags.add(found[1])
            line = line[found.end() :]
    return flags


def flags_of(tool, command, way):
    """A command's flags, as a set, and what some of them may be, by flag."""
    text = ask(tool, *command.split(), *way)
    choices = {}
    if tool in ("gcloud", "aws"):
        flags = set(re.findall(rf"(?<![\w-]){FLAG}", section(text, "SYNOPSIS")))
        for flag, what in re.findall(r"^ {7}(--[\w-]+) \(string\)(.*?)(?=^ {7}--|\Z)", section(text, "OPTIONS"), re.M | re.S):
            if values := re.findall(r"^ +o +([A-Z]\w+)$", what.partition("Possible values:")[2], re.M):
                choices[flag] = values
        wide = re.search(r"These flags are available to all commands: (.*?)\.\n", text, re.S)
        flags |= set(re.findall(FLAG, wide[1])) if wide else set()
    else:
        flags = heads(text, 6 if tool in ("docker", "sbatch") else 4)
        if tool == "kubectl":
            flags |= heads(ask("kubectl", "options"), 4)
        for flag, what in re.findall(r"^ {4}(--[\w-]+).*?:(.*?)(?=^ {4}-|\Z)", text, re.M | re.S):
            if values := re.search(r"Allowed\s+values:\s+(.*?)\.(?:\s|$)", what, re.S):
                choices[flag] = re.split(r",\s+", values[1])
    if not flags and tool != "docker":  # docker tag has none
        raise SystemExit(f"tools.py: {tool} {command}: its help names no flag that this program can find")
    return flags, choices


def version_of(tool):
    """The version of a program in PATH; None where it does not run."""
    number = re.search(r"\d+\.\d[\w.-]*", ask(tool, *TOOLS[tool][0]))
    return number and number[0]


def lines_of(tool):
    """The lines of a program in PATH: its version, and a command with its flags each."""
    _, commands, way = TOOLS[tool]
    lines = [f"{tool} is {version_of(tool)}"]
    for command in commands:
        flags, choices = flags_of(tool, command, way)
        lines.append(" ".join([f"{tool} {command}".strip() + ":", *(f + ("=" + "|".join(choices[f]) if f in choices else "") for f in sorted(flags))]))
    return lines


def listed():
    """The lines of tools.txt by program."""
    lines = {tool: [] for tool in TOOLS}
    if LIST.exists():
        for line in LIST.read_text().splitlines():
            if not line.startswith("#"):
                lines[re.match(r"\w+", line)[0]].append(line)
    return lines


def update():
    lines = listed()
    for tool in TOOLS:
        if shutil.which(tool) and version_of(tool):
            lines[tool] = lines_of(tool)
        else:
            print(f"{tool} is not in PATH or does not run; its lines stay")
    LIST.write_text("# Made by scripts/k8s.d/tools.py from the programs' own help: a program's version, and each command's flags.\n" + "".join(line + "\n" for tool in TOOLS for line in lines[tool]))


def compare():
    lines = listed()
    for tool in TOOLS:
        if not shutil.which(tool):
            continue
        if not version_of(tool):
            print(f"{tool} does not run here, so its flags are not compared")
            continue
        now = lines_of(tool)
        if now[0] != lines[tool][0]:
            print(f"{now[0]} here, the list is of {lines[tool][0].split()[-1]}")
        elif now != lines[tool]:
            raise SystemExit(f"tools.py: tools.txt is not what {now[0]} says; make it again: scripts/k8s.d/tools.py update")
        else:
            print(f"{now[0]}, and tools.txt is what it says")


def wrong(argv, lines):
    """What is wrong with a command, or None."""
    tool, args = argv[0], argv[1:]
    known = None
    for line in lines[tool][1:]:
        command, _, flags = line.partition(":")
        words = command.split()[1:]
        # Flags may stand before the command's name, as kubectl's -n.
        if any(args[i : i + len(words)] == words for i in range(len(args) + 1)):
            known = {flag: values.split("|") if values else None for flag, _, values in (f.partition("=") for f in flags.split())}
    if known is None:
        return "tools.txt has no such command"
    if tool in ("sbatch", "qsub"):  # what stands behind the script is the script's
        args = args[: next(i for i, arg in enumerate(args) if arg.endswith("job.sh"))]
    for i, arg in enumerate(args):
        flag, given, value = arg.partition("=")
        if not re.fullmatch(FLAG, flag):
            continue
        if flag not in known:
            return f"{flag} is no flag of it"
        if known[flag] and (value if given else args[i + 1]) not in known[flag]:
            return f"{flag} takes {', '.join(known[flag])}"
    return None


def check(record, readme):
    lines = listed()
    commands = [shlex.split(line) for line in Path(record).read_text().splitlines()]
    for text in re.findall(r"`([^`]*)`", Path(readme).read_text()):
        words = shlex.split(re.split(r" \\?\| ", text)[0]) if text.split()[0:1] and text.split()[0] in TOOLS else []
        if len(words) > 1:
            commands.append(words)
    for argv in commands:
        if why := wrong(argv, lines):
            raise SystemExit(f"tools.py: {shlex.join(argv)}: {why}")
    for argv in (["kubectl", "get", "nodes", "--no-such-flag"], ["kubectl", "no-such-verb"], ["az", "aks", "nodepool", "add", "--priority=NoSuch"]):
        if not wrong(argv, lines):
            raise SystemExit(f"tools.py takes {shlex.join(argv)}")
    print(f"{len(commands)} commands to other programs, all flags known to them")


if __name__ == "__main__":
    {"update": update, "compare": compare, "check": check}[sys.argv[1]](*sys.argv[2:])
