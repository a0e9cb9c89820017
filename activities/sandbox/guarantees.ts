import type { Isolation } from './isolation.ts';

/** One thing that a sandbox is kept from. `fails` is what is true instead in a form that is not in `heldBy`. */
export type Guarantee = { holds: string; fails: string; heldBy: readonly Isolation['kind'][] };

/**
 * What each form of isolation holds and what it does not. The doctor prints these sentences, docs/threat-model.md
 * repeats them, and `guarantees.test.ts` tries each of them in a real sandbox of each form.
 */
export const GUARANTEES = {
  hostFiles: {
    holds: "A sandbox sees no file of this machine but the system's programs and libraries and a few files of /etc.",
    fails: 'A sandbox reads every file of this machine that its user may read, the hidden tests of tasks among them.',
    heldBy: ['bubblewrap'],
  },
  secrets: {
    holds: "A sandbox cannot read the deployment's secrets.",
    fails: "A sandbox can read the deployment's secrets.",
    heldBy: ['bubblewrap', 'user'],
  },
  otherSandboxes: {
    holds: 'A sandbox cannot read or change the files of another sandbox.',
    fails: 'A sandbox can read and change the files of another sandbox.',
    heldBy: ['bubblewrap', 'user'],
  },
  processesSeen: {
    holds: 'A sandbox sees no process but its own.',
    fails: 'A sandbox sees the processes of this machine and their command lines.',
    heldBy: ['bubblewrap'],
  },
  processesEnded: {
    holds: 'A sandbox cannot send a signal to a process that is not its own.',
    fails: 'A sandbox can end every process of the user who runs the worker.',
    heldBy: ['bubblewrap', 'user'],
  },
  processesLeft: {
    holds: 'No process of a sandbox runs on when the sandbox has ended.',
    fails: 'A process that leaves its parents and clears its environment runs on when the sandbox has ended.',
    heldBy: ['bubblewrap', 'user'],
  },
  rights: {
    holds: 'A sandbox has no capability and gets none: setuid programs give it no rights, and it cannot mount.',
    fails: 'A sandbox may get more rights by a setuid program of this machine.',
    heldBy: ['bubblewrap'],
  },
  filesLeft: {
    holds: 'What a sandbox writes to /tmp, /var/tmp and /dev/shm is seen by no other and is gone when the sandbox has ended.',
    fails: "What a sandbox writes to the machine's /tmp, /var/tmp and /dev/shm is seen by others and stays.",
    heldBy: ['bubblewrap'],
  },
  agentNetwork: {
    holds: 'An agent reaches the gateway and nothing else: no other port of this machine, no other sandbox, no other host. A run or agent file with `network: host` opens that.',
    fails: 'An agent reaches all that this machine reaches: other sandboxes, and what listens on loopback without a password, such as Temporal.',
    heldBy: ['bubblewrap'],
  },
  verifierNetwork: {
    holds: 'A verifier reaches no network at all, the gateway neither.',
    fails: 'A verifier reaches all that this machine reaches.',
    heldBy: ['bubblewrap'],
  },
} as const satisfies Record<string, Guarantee>;

export type GuaranteeName = keyof typeof GUARANTEES;

const NAMES = Object.keys(GUARANTEES).filter((name): name is GuaranteeName => name in GUARANTEES);

function isHeld(name: GuaranteeName, { kind }: Pick<Isolation, 'kind'>): boolean {
  const heldBy: readonly Isolation['kind'][] = GUARANTEES[name].heldBy;
  return heldBy.includes(kind);
}

/** A sentence that is true, and whether it says that something is held. */
export type Statement = { name: GuaranteeName; held: boolean; sentence: string };

/** The sentences that are true of this form of isolation. */
export function statementsOf(isolation: Pick<Isolation, 'kind'>): Statement[] {
  return NAMES.map((name) => {
    const held = isHeld(name, isolation);
    return { name, held, sentence: held ? GUARANTEES[name].holds : GUARANTEES[name].fails };
  });
}

const KINDS = ['bubblewrap', 'user', 'none'] as const;

/** The rows of the table in docs/threat-model.md. */
export function guaranteeRows(): string[] {
  return NAMES.map((name) => {
    const cells = KINDS.map((kind) => (isHeld(name, { kind }) ? 'yes' : 'no'));
    return `| ${GUARANTEES[name].holds} | ${GUARANTEES[name].fails} | ${cells.join(' | ')} |`;
  });
}
