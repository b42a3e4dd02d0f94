"""Groups of commands: what was meant by a word that is none of them, and commands that keep quiet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

import click

_QUIET = f"{__name__}.quiet"
"""Where a context keeps that nothing but results and errors is said."""


def say(text: str) -> None:
    """Print what happens on stderr, unless the user wants to hear nothing of it."""
    if not is_quiet():
        click.echo(text, err=True)


def sayer() -> Callable[[str], None]:
    """Return :func:`say` for other threads, which do not know the command that began them."""
    quiet = is_quiet()
    return lambda text: None if quiet else click.echo(text, err=True)


def is_quiet() -> bool:
    """True if the user wants to hear nothing but results and errors."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_QUIET, False) is True


def _keep_quiet(context: click.Context, param: click.Parameter, quiet: bool) -> None:
    context.meta[_QUIET] = quiet or context.meta.get(_QUIET, False)


_quiet_option = click.Option(
    ["-q", "--quiet"],
    is_flag=True,
    expose_value=False,
    callback=_keep_quiet,
    help="Print only results and errors.",
)


class CommandGroup(click.Group):
    """A group whose commands can be quiet, and that says what was meant by a word that is none of them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, click.Group) and _quiet_option not in command.params:
            command.params.append(_quiet_option)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = self.meant(ctx, args)
            hint = f"; did you mean '{meant}'?" if meant else f"; known: {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"no command {args[0]!r}{hint}", ctx) from error

    def meant(self, ctx: click.Context, args: Sequence[str]) -> str:
        """Return the command line that was most likely meant, "" where nothing is near."""
        for name in self.list_commands(ctx):  # the word is a command of a group: report of study
            group = self.get_command(ctx, name)
            if isinstance(group, CommandGroup) and args[0].lower() in group.list_commands(ctx):
                return " ".join([ctx.command_path, name, args[0].lower(), *args[1:]])
        near = get_close_matches(args[0].lower(), self.list_commands(ctx), n=1, cutoff=0.6)
        if not near:
            return ""
        group = self.get_command(ctx, near[0])
        if isinstance(group, CommandGroup) and len(args) > 1 and group.get_command(ctx, args[1]) is None:
            inner = click.Context(group, parent=ctx, info_name=near[0])
            return group.meant(inner, args[1:]) or inner.command_path
        return " ".join([ctx.command_path, *near, *args[1:]])
