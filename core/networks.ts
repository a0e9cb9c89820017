/** The networks of an agent: with `gateway` it reaches only its gateway, with `host` all that its host reaches. */
export const NETWORKS = ['gateway', 'host'] as const;
