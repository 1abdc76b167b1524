"""The verbs that print what other programs need to know of the table of verbs: shells, and ``man``."""

from __future__ import annotations

import argparse
import re
import time

from neo import __version__
from neo.protocol.enums import NodeType
from neoctl.options import make_parser
from neoctl.verbs import VERBS, Arguments, CommandError, Reply, local_verb

#: What a shell may offer for the words of a usage that name a choice.
CHOICES = {
    "STATE": ["verifying", "stopping", "starting_backup", "stopping_backup"],
    "[TYPE]": [kind.name.lower() for kind in NodeType],
}

BASH = """\
# bash completion of neoctl, written by: neoctl completion bash
_neoctl() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} said= skip= found= number word
    for ((number = 1; number < COMP_CWORD; number++)); do
        word=${{COMP_WORDS[number]}}
        if [[ -n $skip ]]; then skip=; continue; fi
        case $word in
            {valued}) skip=1 ;;
            -*) ;;
            *) said="${{said:+$said }}$word" ;;
        esac
    done
    case $said in
{cases}
    esac
    [[ $current == -* ]] && found="{options}"
    COMPREPLY=($(compgen -W "$found" -- "$current"))
}}
complete -o default -F _neoctl neoctl
"""
#: The same functions serve zsh: sourced, or as a file of `$fpath`, which zsh executes when it completes
#: for the first time.
ZSH = """\
#compdef neoctl
# zsh completion of neoctl, written by: neoctl completion zsh
autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit
"""
ZSH_NOW = """\
if (( $+compstate )); then _bash_complete -o default -F _neoctl; fi
"""


def _options() -> list[argparse.Action]:
    return [action for action in make_parser()._actions if action.option_strings]


def words_after() -> dict[str, list[str]]:
    """Return by the words that were typed the words that may follow, of the beginnings of all verbs."""
    table: dict[str, list[str]] = {"": ["help"], "help": []}
    for name, found in VERBS.items():
        words = name.split()
        for number, word in enumerate(words):
            following = table.setdefault(" ".join(words[:number]), [])
            if word not in following:
                following.append(word)
        if words[0] not in table["help"]:
            table["help"].append(words[0])
        said = name
        for word in found.usage.split()[len(words) :]:
            if word.startswith("[-"):
                continue
            choices = (
                CHOICES.get(word) or re.findall(r"[a-z0-9]+", word)
                if "|" in word
                else CHOICES.get(word)
            )
            table[said] = choices or []
            said += " *"
    return table


def bash() -> str:
    """Return the function by which bash completes."""
    options = _options()
    valued = [name for action in options if action.nargs is None for name in action.option_strings]
    cases = [
        f"        {_pattern(said)}) found={' '.join(words)!r} ;;"
        for said, words in sorted(words_after().items(), key=lambda item: ("*" in item[0], item[0]))
        if words
    ]
    return BASH.format(
        valued=" | ".join(valued),
        cases="\n".join(cases),
        options=" ".join(name for action in options for name in action.option_strings),
    )


def _pattern(said: str) -> str:
    return "''" if not said else said.replace(" ", "\\ ")


@local_verb(
    "completion bash|zsh", "print the completion of a shell: source <(neoctl completion bash)", 1, 1
)
def completion(arguments: Arguments) -> Reply:
    """Data: ``script``."""
    (shell,) = arguments.words
    if shell not in ("bash", "zsh"):
        raise CommandError(f"{shell!r} is neither bash nor zsh")
    script = bash() if shell == "bash" else ZSH + bash() + ZSH_NOW
    return Reply(script.rstrip("\n"), {"script": script})


@local_verb("man", "print the manual page: neoctl man > neoctl.1; man ./neoctl.1")
def man(arguments: Arguments) -> Reply:
    """Data: ``page``."""
    date = time.strftime("%Y-%m-%d")
    lines = [
        f'.TH NEOCTL 1 "{date}" "NEO {__version__}" "User Commands"',
        ".SH NAME",
        "neoctl \\- administer a NEO cluster",
        ".SH SYNOPSIS",
        ".B neoctl",
        "[\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]",
        ".SH OPTIONS",
    ]
    for action in _options():
        names = ", ".join(action.option_strings)
        value = (
            f" \\fI{roff(str(action.metavar or action.dest.upper()))}\\fR"
            if action.nargs is None
            else ""
        )
        lines += [".TP", f"\\fB{roff(names)}\\fR{value}", roff((action.help or "") % vars(action))]
    lines.append(".SH COMMANDS")
    for found in VERBS.values():
        lines += [".TP", f"\\fB{roff(found.usage)}\\fR", roff(found.help)]
    lines += [
        ".SH EXIT STATUS",
        *(".TP", "0", "done"),
        *(
            ".TP",
            "1",
            "refused or not possible; of status: this standby gets nothing from its upstream cluster",
        ),
        *(".TP", "2", "wrong options"),
        *(".TP", "3", "status found a problem"),
        ".SH ENVIRONMENT",
        *(".TP", "NEO_ADMIN", "address of the admin node, if \\fB\\-a\\fR is not given"),
    ]
    page = "\n".join(lines)
    return Reply(page, {"page": f"{page}\n"})


def roff(text: str) -> str:
    """Escape what roff would take for its own."""
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))
