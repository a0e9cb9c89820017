ALTER TABLE "trials" RENAME COLUMN "member" TO "trial_index";--> statement-breakpoint
ALTER TABLE "calls" RENAME COLUMN "policy_label" TO "weight_version";--> statement-breakpoint
ALTER TABLE "publications" RENAME COLUMN "label" TO "weight_version";--> statement-breakpoint
ALTER TABLE "replicas" RENAME COLUMN "label" TO "weight_version";--> statement-breakpoint
UPDATE "calls" SET "continuation" = CASE "continuation" WHEN 'realigned' THEN 'drifted' ELSE 'branched' END WHERE "continuation" IN ('realigned', 'forked');