/** What an agent may reach: `gateway` lets it reach only its gateway, `host` all that its host reaches. */
export const NETWORKS = ['gateway', 'host'] as const;
