ALTER TABLE "groups" ADD COLUMN "claim" text;--> statement-breakpoint
ALTER TABLE "groups" ADD COLUMN "claimed_at" timestamp with time zone;--> statement-breakpoint
CREATE UNIQUE INDEX "groups_by_claim" ON "groups" USING btree ("run_id","claim");