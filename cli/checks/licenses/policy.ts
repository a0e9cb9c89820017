import parse from 'spdx-expression-parse';

/** Licenses that let anyone use, change and pass on the work, and require at most to keep notices. */
const PERMISSIVE = new Set([
  '0BSD',
  'Apache-2.0',
  'BlueOak-1.0.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BSL-1.0',
  'CC0-1.0',
  'CNRI-Python',
  'ISC',
  'MIT',
  'MIT-0',
  'MIT-CMU',
  'PSF-2.0',
  'Unlicense',
  'Zlib',
]);

/** Names in metadata that are not SPDX's. "BSD" does not say how many clauses there are, but each variant is permissive. */
const NAMES: Readonly<Record<string, string>> = {
  Apache: 'Apache-2.0',
  'Apache 2.0': 'Apache-2.0',
  'Apache 2.0 License': 'Apache-2.0',
  'Apache License': 'Apache-2.0',
  'Apache Software License': 'Apache-2.0',
  '3-Clause BSD License': 'BSD-3-Clause',
  BSD: 'BSD-3-Clause',
  'BSD License': 'BSD-3-Clause',
  'BSD-derived (http://www.repoze.org/LICENSE.txt)': 'BSD-3-Clause',
  'ISC License (ISCL)': 'ISC',
  'MIT License': 'MIT',
  'Mozilla Public License 2.0 (MPL 2.0)': 'MPL-2.0',
  'Other/Proprietary License': 'LicenseRef-Proprietary',
  'Python Software Foundation License': 'PSF-2.0',
  'The Unlicense (Unlicense)': 'Unlicense',
};

export type Package = { name: string; version: string; license: string | null };

/** Allows packages whose license is not permissive or not in their metadata. */
export type Exception = {
  /** A pattern that ends with `*` matches all names with that beginning. */
  packages: readonly string[];
  /** The license in its metadata, or in its files if the metadata names none. */
  licenses: readonly string[];
  reason: string;
};

/** Returns the SPDX expression for a license in metadata. */
export const spdxOf = (license: string): string => NAMES[license] ?? license;

/** True when this SPDX expression lets a work be used under permissive licenses alone. */
export function isPermissive(expression: string): boolean {
  try {
    return holds(parse(expression));
  } catch {
    return false;
  }
}

function holds(license: ReturnType<typeof parse>): boolean {
  if ('license' in license) return PERMISSIVE.has(license.license);
  const sides = [license.left, license.right];
  return license.conjunction === 'or' ? sides.some(holds) : sides.every(holds);
}

export function exceptionFor({ name, license }: Package, exceptions: readonly Exception[]): Exception | undefined {
  return exceptions.find(
    ({ packages, licenses }) =>
      packages.some((pattern) => covers(pattern, name)) && (license === null || licenses.includes(license)),
  );
}

export const covers = (pattern: string, name: string): boolean =>
  pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
