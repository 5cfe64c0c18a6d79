"""How GGUF stores numbers: in blocks with scales, or one by one."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK, SUPER_BLOCK = 32, 256
"""Numbers in a block, and in one of those whose scales are numbers of few bits themselves."""


@dataclass(frozen=True)
class Storage:
    """One way to store numbers."""

    name: str
    block_elements: int
    block_bytes: int

    def num_bytes(self, num_elements: int) -> int:
        """Bytes of so many numbers, which fill their blocks."""
        return num_elements // self.block_elements * self.block_bytes


STORAGES = {
    0: Storage("F32", 1, 4),
    1: Storage("F16", 1, 2),
    2: Storage("Q4_0", BLOCK, 18),
    3: Storage("Q4_1", BLOCK, 20),
    6: Storage("Q5_0", BLOCK, 22),
    7: Storage("Q5_1", BLOCK, 24),
    8: Storage("Q8_0", BLOCK, 34),
    10: Storage("Q2_K", SUPER_BLOCK, 84),
    11: Storage("Q3_K", SUPER_BLOCK, 110),
    12: Storage("Q4_K", SUPER_BLOCK, 144),
    13: Storage("Q5_K", SUPER_BLOCK, 176),
    14: Storage("Q6_K", SUPER_BLOCK, 210),
    20: Storage("IQ4_NL", BLOCK, 18),
    23: Storage("IQ4_XS", SUPER_BLOCK, 136),
    30: Storage("BF16", 1, 2),
}
"""The ways to store numbers, by the number of their GGML type."""
NOT_READ = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
"""Names of others, for who is refused."""
