
--
-- What every role may use.  PostgreSQL gives EXECUTE on a new function to PUBLIC by default,
-- but not where ALTER DEFAULT PRIVILEGES says otherwise; the rights of the extension are
-- the same everywhere.  All other functions are revoked from PUBLIC where they are created.
--
GRANT EXECUTE ON FUNCTION
	snowflake_nextval(), snowflake_nextval(text),
	snowflake_nextval_batch(integer), snowflake_nextval_batch(integer, text),
	snowflake_parse(bigint), snowflake_parse(bigint, text),
	snowflake_timestamp(bigint), snowflake_timestamp(bigint, text),
	snowflake_min_id(timestamptz), snowflake_min_id(timestamptz, text),
	snowflake_max_id(timestamptz), snowflake_max_id(timestamptz, text),
	snowflake_compose(timestamptz, integer, integer, integer, integer),
	snowflake_compose(timestamptz, integer, integer, text, integer, integer),
	snowflake_layout(), snowflake_layout(text), snowflake_layouts(),
	snowflake_encode(bigint, text), snowflake_decode(text, text),
	snowflake_mask(bigint, bytea), snowflake_unmask(bigint, bytea),
	snowflake_range(timestamptz, timestamptz), snowflake_range(timestamptz, timestamptz, text),
	snowflake_partition_bounds(timestamptz, timestamptz, interval),
	snowflake_partition_bounds(timestamptz, timestamptz, interval, text),
	snowflake_create_partitions(regclass, timestamptz, timestamptz, interval, text, boolean),
	snowflake_drop_partitions(regclass, timestamptz, text, boolean),
	snowflake_within(bigint, timestamptz, timestamptz), snowflake_within(bigint, timestamptz, timestamptz, text),
	snowflake_guess(bigint, timestamptz),
	snowflake_audit(regclass, name, text),
	snowflake_convert_column(regclass, name, text, boolean),
	snowflake_convert_schema(regnamespace, text, regclass[], boolean),
	snowflake_revert_column(regclass, name, boolean),
	pg_stat_snowflake()
TO PUBLIC;
GRANT SELECT ON pg_stat_snowflake TO PUBLIC;

-- The parts of these functions run with the rights of the caller.
GRANT USAGE ON SCHEMA snowflake TO PUBLIC;
GRANT EXECUTE ON FUNCTION
	snowflake.layout(), snowflake.layout(text), snowflake.layouts, snowflake.parse, snowflake.id_time,
	snowflake.min_id, snowflake.max_id, snowflake.id_range, snowflake.nextval_functions, snowflake.partition_bounds,
	snowflake.layout_definition, snowflake.layouts_in_use,
	snowflake.first_id_from(timestamptz), snowflake.first_id_from(timestamptz, text),
	snowflake.last_id_within(timestamptz, timestamptz), snowflake.last_id_within(timestamptz, timestamptz, text),
	snowflake.step_start, snowflake.partition_suffix, snowflake.partition_name, snowflake.partition_ranges, snowflake.check_partition_key,
	snowflake.layout_fields, snowflake.part_cost, snowflake.guess_candidates,
	snowflake.read_leases, snowflake.lease_page, snowflake.leases_are_here, snowflake.leased_ticks, snowflake.all_leased,
	snowflake.known_unique, snowflake.audited_column,
	snowflake.audit_duplicates, snowflake.audit_ids, snowflake.audit_detail,
	snowflake.qualified_name(oid, name), snowflake.qualified_name(oid), snowflake.column_members, snowflake.column_roots,
	snowflake.following_columns, snowflake.check_column, snowflake.check_table, snowflake.dependents,
	snowflake.check_type_change, snowflake.check_following, snowflake.check_conversion, snowflake.check_citus, snowflake.tables_to_lock,
	snowflake.check_isolation, snowflake.lock_and_check, snowflake.raise_again, snowflake.bound_takes, snowflake.partitioned_by,
	snowflake.default_taking, snowflake.layout_label, snowflake.sequence_keys, snowflake.check_schema, snowflake.prepare_schema,
	snowflake.default_expression, snowflake.check_in_use, snowflake.has_default, snowflake.takes_id,
	snowflake.greatest_value, snowflake.check_new_ids, snowflake.constraints_on_partitions, snowflake.conversion,
	snowflake.prepare_conversion, snowflake.new_sequence_name, snowflake.alter_sequence,
	snowflake.grant_sequence, snowflake.check_former_sequence, snowflake.reversion, snowflake.prepare_reversion,
	snowflake.instead_of, snowflake.new_default, snowflake.is_converted, snowflake.named_sequence, snowflake.owned_sequence,
	snowflake.former_sequence, snowflake.sequence_users, snowflake.reverted_columns
TO PUBLIC;
