ALTER TABLE "trials" RENAME COLUMN "member" TO "trial_index";--> statement-breakpoint
ALTER TABLE "calls" RENAME COLUMN "policy_label" TO "weight_version";--> statement-breakpoint
ALTER TABLE "publications" RENAME COLUMN "label" TO "weight_version";--> statement-breakpoint
ALTER TABLE "replicas" RENAME COLUMN "label" TO "weight_version";