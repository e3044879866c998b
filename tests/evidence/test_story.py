"""The story in docs/howto/requests.md runs as it stands, and tells what it should."""

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "requests.md"


def commands() -> list[list[str]]:
    """The commands of the page's program, in order, without what only makes files."""
    (program,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = program.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("qunlearn ")]


def test_the_story_of_one_request(qunlearn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    first, second = re.findall(r'python -c "\n(.*?)"', program, re.DOTALL)
    exec(first, {})
    anna = tmp_path / "req-17.txt"
    told = {}
    for words in commands():
        if words[1] == "forget":
            lines: list[str] = []
            exec(second, {"print": lines.append})
            anna.write_text("\n".join(lines) + "\n")
        known = anna.read_text().splitlines()[0] if anna.exists() else ""
        words = [known if word.startswith("$(head") else word for word in words]
        code, out, err = qunlearn(*words[1:])
        assert code == 0, (words, err)
        told[words[1]] = out
    assert "The record verifies." in told["verify"]
    assert f"The id {known!r} is in the request" in told["verify"]
    assert "model.onnx is the very file" in told["verify"]
    assert "REQ-17" in told["ledger"]
    assert "certified" in told["ledger"]
    assert not (tmp_path / "runs" / "original").exists()
