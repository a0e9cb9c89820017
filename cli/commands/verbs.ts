import type { Command } from 'commander';
import { register as cancel } from './cancel.ts';
import { register as check } from './check.ts';
import { register as checkModel } from './check-model.ts';
import { register as config } from './config.ts';
import { register as configure } from './configure.ts';
import { register as doctor } from './doctor.ts';
import { register as down } from './down.ts';
import { register as engine } from './engine.ts';
import { register as evaluate } from './evaluate.ts';
import { register as exportVerb } from './export.ts';
import { register as extend } from './extend.ts';
import { register as fork } from './fork.ts';
import { register as gc } from './gc.ts';
import { register as gateway } from './gateway.ts';
import { register as gpuWorker } from './gpu-worker.ts';
import { register as relayWorker } from './relay-worker.ts';
import { register as install } from './install.ts';
import { register as importVerb } from './import.ts';
import { register as key } from './key.ts';
import { register as exportMetrics } from './export-metrics.ts';
import { register as logs } from './logs.ts';
import { register as open } from './open.ts';
import { register as pause } from './pause.ts';
import { register as quickstart } from './quickstart.ts';
import { register as redo } from './redo.ts';
import { register as rescore } from './rescore.ts';
import { register as resume } from './resume.ts';
import { register as rm } from './rm.ts';
import { register as sandbox } from './sandbox.ts';
import { register as schedule } from './schedule.ts';
import { register as show } from './show.ts';
import { register as skip } from './skip.ts';
import { register as status } from './status.ts';
import { register as stop } from './stop.ts';
import { register as supervise } from './supervise.ts';
import { register as train } from './train.ts';
import { register as trials } from './trials.ts';
import { register as tryVerb } from './try.ts';
import { register as up } from './up.ts';
import { register as worker } from './worker.ts';

/** All verbs, in the order in which `--help` lists them. */
export const verbs: ((root: Command) => void)[] = [
  quickstart,
  up,
  down,
  status,
  tryVerb,
  importVerb,
  checkModel,
  train,
  key,
  show,
  open,
  trials,
  pause,
  resume,
  stop,
  cancel,
  configure,
  skip,
  extend,
  redo,
  fork,
  rescore,
  evaluate,
  sandbox,
  schedule,
  exportMetrics,
  exportVerb,
  rm,
  gc,
  logs,
  doctor,
  config,
  engine,
  install,
  gateway,
  worker,
  gpuWorker,
  relayWorker,
  supervise,
  check,
];
