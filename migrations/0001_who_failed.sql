ALTER TABLE "attempts" ADD COLUMN "evidence" text;--> statement-breakpoint
ALTER TABLE "calls" ADD COLUMN "fault" text;