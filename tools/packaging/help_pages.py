#!/usr/bin/env python3
"""help_pages.py PREFIX VERSION: man pages, completion and the list of commands of PREFIX/bin/gyre.

All come from what PREFIX/lib/gyre/PROGRAM --help says: a first line "PROGRAM does this.", text, and groups
of flags, each "  --NAME   TEXT" below a line "GROUP:".  A program that a script is has "usage: ..." alone.
A flag that is a switch takes --noNAME.
"""

import gzip
import os
import re
import subprocess
import sys

FLAG = re.compile(r"  --([a-z0-9_]+) +(\S.*)")


class Command:
    """A program: its purpose, the text above its flags, and groups of (name, text)."""

    def __init__(self, gyre, programs, name):
        said = subprocess.run([gyre, name, "--help"], check=True, capture_output=True, text=True)
        self.name = name
        first, *lines = said.stdout.splitlines()
        begin = f"gyre {name} "
        if first.startswith(begin):
            self.purpose = first[len(begin):].rstrip(".")
        else:
            self.purpose = ""
            lines.insert(0, first)
        self.text, self.groups = [], []
        for line in lines:
            flag = FLAG.fullmatch(line)
            if flag and self.text and self.text[-1].endswith(":"):
                self.groups.append((self.text.pop().rstrip(":"), []))
            if flag and self.groups:
                self.groups[-1][1].append([flag[1], flag[2]])
            elif line.startswith("   ") and self.groups:
                self.groups[-1][1][-1][1] += " " + line.strip()
            else:
                self.text.append(line)
        program = os.path.join(programs, name)
        self.switches = {flag for flag in self.flags() if takes_no(program, flag)}

    def flags(self):
        return [name for _, flags in self.groups for name, _ in flags]


def takes_no(program, flag):
    """Whether the flag is a switch.  Another --noNAME is unknown to the program."""
    said = subprocess.run([program, f"--no{flag}", "--version"], capture_output=True)
    return flag in ("help", "version") or said.returncode == 0


def roff(text):
    """A line of text that man shows as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = text.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text.startswith(".") else text


def text_in_roff(lines):
    """Lines that begin with blanks are examples, an empty line or exit codes end a paragraph."""
    made, example = [], False
    for line in lines:
        if line.startswith("  ") != example and line:
            example = not example
            made.append(".PP\n.EX" if example else ".EE\n.PP")
        elif line.startswith("Exit codes:"):
            made.append(".PP")
        made.append(roff(line) if line else "" if example else ".PP")
    return "\n".join(made + [".EE"] * example)


def man_page(name, version, purpose, synopsis, text, groups, others):
    parts = [
        f'.TH {name.upper()} 1 "" "Gyre {version}" "Gyre"',
        f".SH NAME\n{roff(name)} \\- {roff(purpose)}",
        f".SH SYNOPSIS\n{synopsis}",
        f".SH DESCRIPTION\n{text_in_roff(text)}",
    ]
    if groups:
        parts.append(".SH OPTIONS")
    for title, flags in groups:
        parts.append(f".SS {roff(title)}")
        parts += [f".TP\n.B {roff('--' + flag)}\n{roff(said)}" for flag, said in flags]
    parts.append(".SH SEE ALSO\n" + ", ".join(f".BR {roff(o)} (1)" for o in others).replace(", ", ",\n"))
    return "\n".join(parts) + "\n"


def write_man(prefix, page, text):
    # Without a name and a time in it, the same text gives the same bytes.
    path = os.path.join(prefix, "share/man/man1", page + ".1.gz")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())


def write(prefix, path, text):
    path = os.path.join(prefix, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def help_text(commands):
    lines = ["gyre trains neural nets, and runs them.", "",
             "  gyre train --trainer=$(gyre models)/lenet/trainer.textproto --out=runs/a",
             "  gyre evaluate --run=runs/a",
             "  mpirun -np 2 gyre train --trainer=...",
             "  cp -r $(gyre models) .                # the models' texts, to change them", "", "Commands:"]
    rows = [(c.name, c.purpose) for c in commands]
    rows += [("models", "prints the folder of the models' texts"), ("help", "says what a command takes")]
    width = max(len(name) for name, _ in rows) + 2
    lines += [f"  {name:{width}}{purpose}" for name, purpose in rows]
    lines += ["", "gyre COMMAND --help lists a command's flags, gyre --version the release."]
    return "\n".join(lines) + "\n"


def bash_completion(commands):
    names = " ".join([c.name for c in commands] + ["models", "help", "--help", "--version"])
    cases = "".join(
        f"    {c.name}) flags='"
        + " ".join(f"--{f}" if f in c.switches else f"--{f}=" for f in c.flags())
        + "' ;;\n"
        for c in commands
    )
    return f"""# Completion of gyre for bash: commands, flags, and files elsewhere.
_gyre() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flags=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)) || [[ $COMP_CWORD == 2 && ${{COMP_WORDS[1]}} == help ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{names}' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}  esac
  [[ $word == -* ]] || return
  mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  [[ ${{#COMPREPLY[@]}} != 1 || $COMPREPLY != *= ]] || compopt -o nospace
}}
complete -o default -F _gyre gyre
"""


def zsh_quoted(text, special):
    for sign in special:
        text = text.replace(sign, "\\" + sign)
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_completion(commands):
    rows = [(c.name, c.purpose) for c in commands]
    rows += [("models", "prints the folder of the models' texts"), ("help", "says what a command takes")]
    names = "\n".join("    " + zsh_quoted(n, ":") + ":" + zsh_quoted(p, ":") for n, p in rows)
    cases = ""
    for c in commands:
        cases += f"  {c.name})\n    flags=(\n"
        for flag, said in (pair for _, flags in c.groups for pair in flags):
            told = zsh_quoted(f"[{said.translate(str.maketrans('[]', '()'))}]", "\\:")[1:-1]
            value = "" if flag in c.switches else "=", "" if flag in c.switches else ":value:_files"
            repeated = "*" if "Repeatable." in said else ""
            cases += f"      '{repeated}--{flag}{value[0]}{told}{value[1]}'\n"
        cases += "    )\n    ;;\n"
    return f"""#compdef gyre
# Completion of gyre for zsh: commands, flags with their texts, and files elsewhere.
local -a commands flags
if ((CURRENT == 2)) || [[ $CURRENT == 3 && $words[2] == help ]]; then
  commands=(
{names}
  )
  _describe command commands
  return
fi
case $words[2] in
{cases}esac
shift words
((CURRENT--))
_arguments $flags '*:file:_files'
"""


def main():
    prefix, version = sys.argv[1:]
    gyre, programs = os.path.join(prefix, "bin/gyre"), os.path.join(prefix, "lib/gyre")
    names = sorted(n for n in os.listdir(programs) if not n.endswith(".so"))
    commands = [Command(gyre, programs, name) for name in names]
    for c in commands:
        page = man_page(f"gyre-{c.name}", version, c.purpose,
                        f".B gyre {roff(c.name)}\n[\\fB\\-\\-\\fIFLAG\\fR=\\fIVALUE\\fR]...",
                        c.text, c.groups, ["gyre"])
        write_man(prefix, f"gyre-{c.name}", page)
    told = help_text(commands)
    write(prefix, "share/gyre/help.txt", told)
    first, *lines = told.splitlines()
    write_man(prefix, "gyre", man_page(
        "gyre", version, first[len("gyre "):].rstrip("."), ".B gyre\n.I COMMAND\n[\\fIARGUMENT\\fR]...",
        lines, [], [f"gyre-{c.name}" for c in commands]))
    write(prefix, "share/bash-completion/completions/gyre", bash_completion(commands))
    write(prefix, "share/zsh/vendor-completions/_gyre", zsh_completion(commands))
    print(f"man pages and completion of {len(commands)} commands")


if __name__ == "__main__":
    main()
