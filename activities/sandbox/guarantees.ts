import type { Isolation } from './isolation.ts';

/** One guarantee of a sandbox. */
export type Guarantee = {
  holds: string;
  /** The sentence that is true for a form that is not in `heldBy`, or where the required support is missing. */
  fails: string;
  heldBy: readonly Isolation['kind'][];
  needs?: 'seccomp' | 'cgroup';
  /** True when a sandbox with a user of its own needs a deployment's folder that is closed to other users. */
  needsClosedHome?: true;
};

type Form = Pick<Isolation, 'kind' | 'seccomp' | 'cgroup'>;
/** True when the deployment's folder is closed to other users (mode 0700). */
type Home = { isClosed: boolean };

/**
 * The guarantees that each form of isolation gives and does not give. The doctor prints these sentences, docs/threat-model.md
 * repeats them, and `guarantees.test.ts` tries each of them in a real sandbox of each form.
 */
export const GUARANTEES = {
  hostFiles: {
    holds:
      "A sandbox sees no file of this machine but the system's programs and libraries, a few files of /etc, Python's folder, the folder of the agents and their packages.",
    fails: 'A sandbox reads every file of this machine that its user may read, the hidden tests of tasks among them.',
    heldBy: ['bubblewrap'],
  },
  deploymentFiles: {
    holds: "A sandbox cannot read the deployment's folder: secrets, Temporal's data, checkpoints, batches, logs.",
    fails: "A sandbox can read the deployment's folder and what in it is not closed by itself.",
    heldBy: ['bubblewrap', 'user'],
    needsClosedHome: true,
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
    holds:
      'A sandbox has no capability on this machine and gets none: setuid programs give it no rights, and it mounts nothing that others see.',
    fails: 'A sandbox may get more rights by a setuid program of this machine.',
    heldBy: ['bubblewrap', 'user'],
  },
  systemCalls: {
    holds:
      "A sandbox makes only the system calls of podman's default profile, and none that mounts or makes a namespace.",
    fails: 'A sandbox makes every system call that its user may make.',
    heldBy: ['bubblewrap'],
    needs: 'seccomp',
  },
  descriptors: {
    holds: 'A sandbox inherits no open file or socket of the worker.',
    fails: 'A sandbox inherits open files of the worker.',
    heldBy: ['bubblewrap', 'user', 'none'],
  },
  sharedFolders: {
    holds: 'A sandbox shares no /tmp, /var/tmp or /dev/shm with anything else.',
    fails: "A sandbox shares the machine's /tmp, /var/tmp and /dev/shm with all others.",
    heldBy: ['bubblewrap'],
  },
  filesLeft: {
    holds:
      'What a sandbox writes to /tmp, /var/tmp and /dev/shm, or to world-writable folders directly in them, is gone when its process has ended or the sandbox is removed.',
    fails: 'What a sandbox writes to /tmp, /var/tmp and /dev/shm stays there.',
    heldBy: ['bubblewrap', 'user'],
  },
  memory: {
    holds: "A sandbox never uses more memory than its task's `memory_mb`. Files in memory count too.",
    fails:
      'The memory of a sandbox is counted at most twice a second, and one that uses more than `memory_mb` is ended: between two counts it can use more. Not ' +
      'counted are files in memory that no process of it shows as open: those in flight between sockets, and those of a process that hides its descriptors.',
    heldBy: ['bubblewrap', 'user'],
    needs: 'cgroup',
  },
  processorTime: {
    holds: "A sandbox gets no more processor time than its task's `cpus`.",
    fails:
      "A sandbox runs on as many cores as its task's `cpus` says, in whole cores, unless it asks the kernel for others.",
    heldBy: ['bubblewrap', 'user'],
    needs: 'cgroup',
  },
  storage: {
    holds: "A sandbox never takes more disk than its task's `storage_mb`.",
    fails:
      'The disk that a sandbox uses is counted at most every two seconds, and one that uses more than `storage_mb` is ended: between two counts it can use more. No ' +
      'single file grows larger. Deleted files that a process shows as open count too. Not counted are deleted files that are only mapped into memory, in ' +
      'flight between sockets, or in a process that hides its descriptors, and without bubblewrap files outside of the sandbox and in folders that are closed to the worker.',
    heldBy: [],
  },
  agentNetwork: {
    holds:
      'An agent reaches the gateway and nothing else: no other port of this machine, no other sandbox, no other host. A run or agent file with `network: host` opens that, and one with a list opens the hosts in it.',
    fails:
      'An agent reaches all that this machine reaches: other sandboxes, and what listens on loopback without a password, such as Temporal.',
    heldBy: ['bubblewrap'],
  },
  listedHosts: {
    holds:
      'An agent whose file or run file lists hosts in `network` reaches the gateway and these hosts, through a proxy that logs: no loopback, no private address ' +
      'that is not itself in the list, and no other name by the TLS server name or the HTTP host of a connection.',
    fails: 'A list of hosts in `network` holds no agent back: it reaches all that this machine reaches.',
    heldBy: ['bubblewrap'],
  },
  verifierNetwork: {
    holds:
      'A verifier cannot reach any network, not even the gateway. One whose task lists hosts for it reaches these, through such a proxy.',
    fails: 'A verifier reaches all that this machine reaches.',
    heldBy: ['bubblewrap'],
  },
  postgres: {
    holds:
      "No sandbox reaches PostgreSQL, unless a run or agent file says `network: host` or lists its address: then PostgreSQL's password alone protects it.",
    fails: "A sandbox reaches PostgreSQL, and PostgreSQL's password alone protects it.",
    heldBy: ['bubblewrap'],
  },
  temporal: {
    holds: 'No sandbox reaches the Temporal that Trialgate starts, not even with `network: host` or a list.',
    fails: 'A sandbox reaches Temporal, which asks for no password, and through it the whole deployment.',
    heldBy: ['bubblewrap'],
  },
} as const satisfies Record<string, Guarantee>;

export type GuaranteeName = keyof typeof GUARANTEES;

const NAMES = Object.keys(GUARANTEES).filter((name): name is GuaranteeName => name in GUARANTEES);

function isHeld(name: GuaranteeName, form: Form, home: Home): boolean {
  const { heldBy, needs, needsClosedHome }: Guarantee = GUARANTEES[name];
  if (needsClosedHome && form.kind === 'user' && !home.isClosed) return false;
  return heldBy.includes(form.kind) && (!needs || form[needs] !== null);
}

/** A true sentence. `held` is true when it states a guarantee that holds. */
export type Statement = { name: GuaranteeName; held: boolean; sentence: string };

/** Returns the sentences that are true for this form of isolation. */
export function statementsOf(isolation: Form, home: Home): Statement[] {
  return NAMES.map((name) => {
    const held = isHeld(name, isolation, home);
    return { name, held, sentence: held ? GUARANTEES[name].holds : GUARANTEES[name].fails };
  });
}

const KINDS = ['bubblewrap', 'user', 'none'] as const;

/** Returns the rows of the table in docs/threat-model.md. */
export function guaranteeRows(): string[] {
  return NAMES.map((name) => {
    const guarantee: Guarantee = GUARANTEES[name];
    return `| ${guarantee.holds} | ${guarantee.fails} | ${KINDS.map((kind) => cell(guarantee, kind)).join(' | ')} |`;
  });
}

function cell({ heldBy, needs, needsClosedHome }: Guarantee, kind: Isolation['kind']): string {
  if (!heldBy.includes(kind)) return 'no';
  if (needsClosedHome && kind === 'user') return 'if it is closed (0700)';
  return needs ? `with ${needs}` : 'yes';
}
