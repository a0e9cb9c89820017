/** Advisories that are known and do not concern how the package is used here. */
export const ACCEPTED: Readonly<Record<string, string>> = {
  'GHSA-67mh-4wv8-2f99': "an older esbuild's development server answers any web page; drizzle-kit loads its settings with that esbuild and never serves",
};
