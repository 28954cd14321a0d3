"""One bash for the commands of a page: variables and the working directory last from block to block.
Each command is sourced from a file, so the shell survives a command that fails and knows its exit code.
"""
import os
import select
import subprocess


class Shell:
    def __init__(self, folder, directory, environment, seconds=60):
        self.folder, self.seconds = folder, seconds
        self.script = os.path.join(folder, "command.sh")
        self.output = os.path.join(folder, "output")
        self.count = 0
        reader, writer = os.pipe()
        self.answers = os.fdopen(reader, "r", encoding="ascii")
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env=environment,
            pass_fds=[writer],
            start_new_session=True,
            text=True,
        )
        self.fd = writer
        os.close(writer)
        self.tell("last=0")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def run(self, command):
        """(exit code, lines of output): standard output and standard error together."""
        with open(self.script, "w", encoding="utf-8") as f:
            f.write(command + "\n")
        self.tell(
            f'(exit $last); . "{self.script}" >"{self.output}" 2>&1 </dev/null {self.fd}>&-;'
            f" last=$?; echo $last >&{self.fd}"
        )
        code = self.answer(command)
        with open(self.output, encoding="utf-8", errors="replace") as f:
            return code, f.read().split("\n")

    def answer(self, command):
        if not select.select([self.answers], [], [], self.seconds)[0]:
            raise AssertionError(f"not within {self.seconds} s: {command}")
        line = self.answers.readline()
        if not line:
            raise AssertionError(f"the shell ended at: {command}")
        return int(line)

    def close(self):
        self.tell("kill $(jobs -p); wait")
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()


def commands_of(text):
    """The complete commands of a block, one after another: several lines if one continues."""
    commands, begun = [], ""
    for line in text.split("\n")[:-1]:
        begun += ("\n" if begun else "") + line
        if not begun.strip() or begun.strip().startswith("#"):
            begun = ""
            continue
        check = subprocess.run(["bash", "-n"], input=begun + "\n", capture_output=True, text=True)
        if check.returncode == 0 and not check.stderr and not begun.endswith("\\"):
            commands.append(begun)
            begun = ""
    if begun.strip():
        raise ValueError(f"incomplete command: {begun!r}")
    return commands
