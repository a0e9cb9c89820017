/** The classes of attacks. Each is a section of `docs/writing-verifiers.md`, named by its anchor. */
export const SECTIONS = {
  'judge-a-copy':
    'Judge a copy of the work in a sandbox that the agent never had, and keep nothing else of its sandbox.',
  'run-only-your-own-tests': 'Run only tests, settings and programs from your own folder, with absolute paths.',
  'import-nothing-from-the-work':
    'Start Python with -I -S, and let no file of the work say what your tests import or which variables they have.',
  'run-the-work-in-another-process':
    'Run the work in a process of its own, with nothing in it but the arguments, and count the results in yours.',
  'compare-plain-values':
    'Have results cross the border as text such as JSON, check their types, and compare them in your own process.',
  'hide-the-answers': 'Read the expected results into your own process and delete their file before the work runs.',
  'write-the-reward-last':
    'Write the reward last, as the count of your own comparisons, and read no text for it that the work can print.',
  'survive-what-the-work-leaves':
    'Limit and expect everything: sizes, numbers of files, names, pipes, output, time and memory.',
  'leave-no-future-in-the-repository': 'Give the agent a repository whose only commit is the one that it begins from.',
  'close-the-network': 'Give the agent no network but the gateway: `network: gateway`, under bubblewrap.',
  'one-answer-in-one-place': 'Read one answer, at one marked place, and compare all of it.',
  'numbers-and-patterns': 'Parse what the reply says with bounds, and never use it as a pattern or as code.',
  'programs-in-replies':
    'Run the reply’s program in another process, compare what it prints, and do not trust its exit code.',
  'json-in-replies': 'Require every property, forbid others, and refuse NaN, Infinity and very deep values.',
  'models-as-judges':
    'Mark where the reply begins and ends with a text that it cannot know, and take the judge’s last word alone.',
} as const;

export type Section = keyof typeof SECTIONS;

type AnyAttack = {
  /** Its name, which `--only` takes. A program's is also that of its file in `programs/`. */
  name: string;
  /** A sentence: what it does, and why that could pay. */
  what: string;
  section: Section;
};

/** An attack by what the agent does in its sandbox: a Python program of `programs/`. */
export type ProgramAttack = AnyAttack & { kind: 'program' };

/** An attack by what the model says, on a row. */
export type ReplyAttack = AnyAttack & {
  kind: 'reply';
  /** Returns the replies to a prompt, each of which is tried. */
  replies: (prompt: string) => string[];
  /** True when the replies list guesses in different orders. Then it pays only if each of them does: one may be right by luck. */
  isGuess: boolean;
};

export type Attack = ProgramAttack | ReplyAttack;
