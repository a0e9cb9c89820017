"""Writes the reward files and takes the right to write from them and from their folder."""

from common import REWARDS, reward_files, write

for file in reward_files():
    write(file, REWARDS[file.name], 0o444)
for folder in {file.parent for file in reward_files()}:
    if folder.is_dir():
        folder.chmod(0o555)
