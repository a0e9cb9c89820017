CREATE TABLE "refusals" (
	"trial_id" text PRIMARY KEY NOT NULL,
	"count" integer NOT NULL,
	"latest" jsonb NOT NULL
);
--> statement-breakpoint
ALTER TABLE "trials" ADD COLUMN "metadata" jsonb;--> statement-breakpoint
ALTER TABLE "refusals" ADD CONSTRAINT "refusals_trial_id_trials_id_fk" FOREIGN KEY ("trial_id") REFERENCES "public"."trials"("id") ON DELETE cascade ON UPDATE no action;