import type { Exception } from './policy.ts';

const DEVELOPMENT_ONLY = 'a tool of development and tests brings it; it is used unchanged and is no part of what runs';

export const NPM_EXCEPTIONS: readonly Exception[] = [
  {
    packages: ['@img/sharp-*'],
    licences: ['LGPL-3.0-or-later', 'Apache-2.0 AND LGPL-3.0-or-later', 'Apache-2.0 AND LGPL-3.0-or-later AND MIT'],
    reason: DEVELOPMENT_ONLY,
  },
  { packages: ['lightningcss', 'lightningcss-*'], licences: ['MPL-2.0'], reason: DEVELOPMENT_ONLY },
  { packages: ['spdx-exceptions'], licences: ['CC-BY-3.0'], reason: 'a list of names that this check itself reads' },
  {
    packages: ['caniuse-lite'],
    licences: ['CC-BY-4.0'],
    reason: "data on browsers for the bundler of Temporal's worker; CC-BY asks for attribution alone",
  },
  {
    packages: ['unionfs'],
    licences: ['Unlicense'],
    reason: 'its package.json names no licence; its LICENSE file is the Unlicense',
  },
];

const FILES_OF_ITS_OWN = 'it is used unchanged; the licence concerns changes to its own files alone';

export const PYTHON_EXCEPTIONS: readonly Exception[] = [
  { packages: ['certifi', 'tqdm'], licences: ['MPL-2.0', 'MPL-2.0 AND MIT'], reason: FILES_OF_ITS_OWN },
  {
    packages: ['pycountry'],
    licences: ['LGPL-2.1-only'],
    reason: "it is used unchanged, as a library that vLLM's tokenizers load",
  },
  {
    packages: ['intel-openmp', 'intel-cmplr-lib-ur'],
    licences: ['LicenseRef-Proprietary'],
    reason: "Intel's OpenMP runtime, which vLLM for CPUs loads; its licence lets anyone use and pass on the library",
  },
  {
    packages: ['nvidia-*', 'cuda-toolkit'],
    licences: ['LicenseRef-NVIDIA-Proprietary', 'LicenseRef-Proprietary'],
    reason: "NVIDIA's CUDA libraries: PyTorch and vLLM need them on a GPU, and only a machine with one installs them",
  },
  { packages: ['setuptools'], licences: ['MIT'], reason: 'its metadata names no licence; its LICENSE file is MIT' },
  {
    packages: ['oss-harmony', 'quack-kernels'],
    licences: ['Apache-2.0'],
    reason: 'its metadata names no licence; its LICENSE file is Apache-2.0',
  },
  {
    packages: ['torchcodec'],
    licences: ['BSD-3-Clause'],
    reason: 'its metadata names no licence; its LICENSE file is BSD-3-Clause',
  },
];
