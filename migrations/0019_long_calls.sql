CREATE TABLE "long_calls" (
	"call_id" uuid PRIMARY KEY NOT NULL,
	"trial_id" text NOT NULL,
	"attempt" integer NOT NULL,
	"run_id" text,
	"engine" text,
	"stream" boolean NOT NULL,
	"constrained" boolean NOT NULL,
	"started_at" timestamp with time zone NOT NULL,
	"first_token_at" timestamp with time zone,
	"tokens" integer DEFAULT 0 NOT NULL,
	"seen_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "long_calls_by_trial" ON "long_calls" USING btree ("trial_id","attempt");--> statement-breakpoint
CREATE INDEX "long_calls_by_run" ON "long_calls" USING btree ("run_id");