CREATE TABLE "outputs" (
	"trial_id" text NOT NULL,
	"attempt" integer NOT NULL,
	"program" text NOT NULL,
	"stdout" text NOT NULL,
	"stderr" text NOT NULL,
	CONSTRAINT "outputs_trial_id_attempt_program_pk" PRIMARY KEY("trial_id","attempt","program")
);
--> statement-breakpoint
ALTER TABLE "outputs" ADD CONSTRAINT "outputs_trial_id_trials_id_fk" FOREIGN KEY ("trial_id") REFERENCES "public"."trials"("id") ON DELETE cascade ON UPDATE no action;