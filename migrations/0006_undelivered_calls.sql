CREATE TABLE "undelivered_calls" (
	"call_id" uuid PRIMARY KEY NOT NULL,
	"trial_id" text NOT NULL,
	"attempt" integer NOT NULL,
	"digest" "bytea" NOT NULL,
	"idempotency_key" text,
	"backend" integer NOT NULL,
	"is_cut" boolean DEFAULT false NOT NULL,
	"recorded_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "undelivered_calls_by_request" ON "undelivered_calls" USING btree ("trial_id","digest");