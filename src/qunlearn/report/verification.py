"""What a check of a signed record showed, in words."""

from __future__ import annotations

from qunlearn.evidence.verify import Check, Verification


def check_words(check: Check) -> str:
    """What one check showed, in a sentence."""
    name = check.name
    match check.what, check.state, check.reason:
        case "signature", "proven", key:
            return f"The record is unchanged since it was signed with the key {key[:16]}."
        case "signature", _, key:
            return f"The signature is not one of the key {key[:16]}, or the record was changed."
        case "signer", "proven", _:
            return f"The key is the one in {name}, which you named."
        case "signer", _, _:
            return (
                f"That the key {name[:16]} is the officer's: compare it with one that you trust "
                "(--public-key)."
            )
        case "validity", "failed", made:
            return f"The record says it was made {made}, when the key was not valid ({name})."
        case "validity", _, made:
            return f"That it was made {made}, while the key was valid ({name}): the signer's clock."
        case "file", "proven", _:
            return f"{name} is the very file that the record is about."
        case "file", "claimed", _:
            return f"The digest of {name}, which is not beside the record."
        case "file", _, "changed":
            return f"{name} is not the file that the record is about: its digest differs."
        case "file", _, _:
            return f"{name} is none of the files that the record is about."
        case "chain", "proven", _:
            return f"The earlier record {name} is unchanged, and signed with the same key."
        case "chain", "claimed", "absent":
            return f"That there was an earlier record, {name}, which is not at hand."
        case "chain", "claimed", _:
            return f"The earlier record {name} is unchanged; it was signed with another key."
        case "chain", _, "changed":
            return f"The earlier record {name} was changed or replaced."
        case "chain", _, _:
            return f"The earlier record {name} has no valid signature."
        case "proof", "proven", _:
            return f"The id {name!r} is in the request that the record is about."
        case _:
            return f"The proof in {check.reason} does not show that {name!r} is in the request."


def verification_words(result: Verification) -> list[str]:
    """What a check showed, a line each: what is wrong, what is proven, what is only claimed."""
    record = result.record.predicate
    if not result.signed:
        words = [check_words(check) for check in result.checks]
        return ["The record does NOT verify, and proves nothing.", *words]
    lines = ["The record verifies." if result.valid else "The record does NOT verify."]
    for state, title in (("failed", "Wrong"), ("proven", "Proven"), ("claimed", "Only claimed")):
        sentences = [check_words(check) for check in result.checks if check.state == state]
        if state == "claimed":
            sentences += [
                f"The signer's statements: {record.request.samples:,} samples were forgotten or "
                f"retired by {record.request.completed}; result {record.result}.",
                *record.limits,
            ]
        if sentences:
            lines += [f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
    return lines
