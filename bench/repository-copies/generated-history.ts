/** Yields commits of generated text in the format of `git fast-import`. The same options give the same commits. */
export function* generatedHistory({ files, commits }: { files: number; commits: number }): Generator<string> {
  const next = pseudoRandom(7);
  const text = (): string =>
    Array.from({ length: 20 + (next() % 140) }, () => Array.from({ length: 8 }, () => `word${next() % 3000}`).join(' '))
      .join('\n')
      .concat('\n');
  const path = (file: number): string => `package${Math.floor(file / 50)}/module${file}.py`;
  for (let commit = 0; commit < commits; commit += 1) {
    const message = `commit ${commit}`;
    yield `commit refs/heads/main\ncommitter a <a@localhost> ${1_700_000_000 + commit * 60} +0000\ndata ${message.length}\n${message}\n`;
    const changed =
      commit === 0 ? Array.from({ length: files }, (_, file) => file) : Array.from({ length: 5 }, () => next() % files);
    for (const file of changed) {
      const content = text();
      yield `M 100644 inline ${path(file)}\ndata ${content.length}\n${content}\n`;
    }
  }
}

/** A linear congruential generator. Its lower bits repeat soon, so they are dropped. */
function pseudoRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state >>> 8;
  };
}
