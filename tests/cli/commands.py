"""What the tests of the command line share."""

from typer.testing import CliRunner

from hiermem.cli.app import app


def run(*words, code=0, given=None, **environment):
    """Run a command in this process; it has to end with ``code``, unless that is None."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=given, env=environment)
    assert code is None or result.exit_code == code, result.output
    return result
