"""Known vulnerabilities of releases, by pip-audit, for `make audit`: python tests/audit.py PIP_AUDIT LIST.

Where the list of vulnerabilities cannot be reached, pip-audit skips every package and ends well, or says so and ends:
that is no audit. Anything else that keeps it from an answer is a failure.
"""

import json
import subprocess
import sys
from typing import Any

UNREACHABLE = ("connection", "timed out", "max retries", "name resolution")


def audit(pip_audit: str, requirements: str) -> int:
    """Print what is known of the releases in a file, and return the exit status: 1 where anything is."""
    command = [pip_audit, "--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([*command, "--requirement", requirements], capture_output=True, text=True)
    if not done.stdout.strip():
        reason, away = " ".join(done.stderr.split())[-300:], any(sign in done.stderr.lower() for sign in UNREACHABLE)
        print(f"audit {'skipped' if away else 'failed'}: {reason}")
        return 0 if away else 1
    return tell(json.loads(done.stdout)["dependencies"])


def tell(packages: list[dict[str, Any]]) -> int:
    """Print what pip-audit found of each package, and return 1 where that is anything."""
    seen = [package for package in packages if "vulns" in package]
    if not seen:
        print(f"audit skipped, the list of vulnerabilities cannot be reached: {packages[0]['skip_reason']}")
        return 0
    found = [(package, item["id"]) for package in seen for item in package["vulns"]]
    for package, name in found:
        print(f"{package['name']} {package['version']}: {name}")
    print(f"{len(seen)} of {len(packages)} packages audited, {len(found)} vulnerabilities known")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(audit(*sys.argv[1:]))
