CREATE TABLE "blobs" (
	"trial_id" text NOT NULL,
	"digest" "bytea" NOT NULL,
	"bytes" "bytea" NOT NULL,
	CONSTRAINT "blobs_trial_id_digest_pk" PRIMARY KEY("trial_id","digest")
);
--> statement-breakpoint
ALTER TABLE "calls" ADD COLUMN "routed_experts" jsonb;--> statement-breakpoint
ALTER TABLE "blobs" ADD CONSTRAINT "blobs_trial_id_trials_id_fk" FOREIGN KEY ("trial_id") REFERENCES "public"."trials"("id") ON DELETE cascade ON UPDATE no action;