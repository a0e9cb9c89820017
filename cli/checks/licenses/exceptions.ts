import type { Exception } from './policy.ts';

const DEVELOPMENT_ONLY = 'a tool of development and tests brings it; it is used unchanged and is no part of what runs';

export const NPM_EXCEPTIONS: readonly Exception[] = [
  {
    packages: ['@img/sharp-*'],
    licenses: ['LGPL-3.0-or-later', 'Apache-2.0 AND LGPL-3.0-or-later', 'Apache-2.0 AND LGPL-3.0-or-later AND MIT'],
    reason: DEVELOPMENT_ONLY,
  },
  { packages: ['lightningcss', 'lightningcss-*'], licenses: ['MPL-2.0'], reason: DEVELOPMENT_ONLY },
  { packages: ['axe-core'], licenses: ['MPL-2.0'], reason: DEVELOPMENT_ONLY },
  { packages: ['spdx-exceptions'], licenses: ['CC-BY-3.0'], reason: 'a list of names that this check itself reads' },
  {
    packages: ['caniuse-lite'],
    licenses: ['CC-BY-4.0'],
    reason: "data on browsers for the bundler of Temporal's worker; CC-BY asks for attribution alone",
  },
  {
    packages: ['argparse'],
    licenses: ['Python-2.0'],
    reason: "Python's own license, which is permissive; the YAML parser of the Kubernetes client brings it",
  },
  {
    packages: ['unionfs'],
    licenses: ['Unlicense'],
    reason: 'its package.json names no license; its LICENSE file is the Unlicense',
  },
  {
    packages: ['ssh2', 'cpu-features', 'buildcheck'],
    licenses: ['MIT'],
    reason: "their package.json has the license in an old form (`licenses`); their LICENSE files are MIT's",
  },
];

const FILES_OF_ITS_OWN = 'it is used unchanged; the license concerns changes to its own files alone';

export const PYTHON_EXCEPTIONS: readonly Exception[] = [
  {
    packages: ['certifi', 'tqdm', 'orjson'],
    licenses: ['MPL-2.0', 'MPL-2.0 AND MIT', 'MPL-2.0 AND (Apache-2.0 OR MIT)'],
    reason: FILES_OF_ITS_OWN,
  },
  {
    packages: ['pycountry'],
    licenses: ['LGPL-2.1-only'],
    reason: "it is used unchanged, as a library that vLLM's tokenizers load",
  },
  {
    packages: ['intel-openmp', 'intel-cmplr-lib-ur'],
    licenses: ['LicenseRef-Proprietary'],
    reason: "Intel's OpenMP runtime, which vLLM for CPUs loads; its license lets anyone use and pass on the library",
  },
  {
    packages: ['nvidia-*', 'cuda-toolkit'],
    licenses: ['LicenseRef-NVIDIA-Proprietary', 'LicenseRef-Proprietary'],
    reason: "NVIDIA's CUDA libraries: PyTorch and vLLM need them on a GPU, and only a machine with one installs them",
  },
  {
    packages: ['setuptools', 'huey'],
    licenses: ['MIT'],
    reason: 'its metadata names no license; its LICENSE file is MIT',
  },
  {
    packages: ['pytest-timeout'],
    licenses: ['DFSG approved AND MIT'],
    reason: 'its license is MIT; its metadata also has the classifier "DFSG approved"',
  },
  {
    packages: ['oss-harmony', 'quack-kernels'],
    licenses: ['Apache-2.0'],
    reason: 'its metadata names no license; its LICENSE file is Apache-2.0',
  },
  {
    packages: ['torchcodec'],
    licenses: ['BSD-3-Clause'],
    reason: 'its metadata names no license; its LICENSE file is BSD-3-Clause',
  },
];
