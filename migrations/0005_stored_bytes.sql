ALTER TABLE "calls" ADD COLUMN "request_bytes" integer;--> statement-breakpoint
ALTER TABLE "trials" ADD COLUMN "used_bytes" bigint DEFAULT 0 NOT NULL;