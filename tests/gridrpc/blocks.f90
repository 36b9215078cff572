! Blocks and data that stay on servers, through the modules of grpc.f90: blocks CONFIGURATION. Prints a line for each
! case.
program blocks
    use grpc
    use suite
    use, intrinsic :: iso_c_binding
    implicit none
    integer, parameter :: n = 3000
    character(len=200) :: configuration
    type(grpc_function_handle_t) :: axpy, total
    real(c_double), target, asynchronous :: x(n), y(n), z(n), sum
    call get_command_argument(1, configuration)
    call gives(grpc_initialize(configuration), GRPC_NO_ERROR)
    call gives(grpc_function_handle_default(axpy, "gridrpc/axpy"), GRPC_NO_ERROR)
    call gives(grpc_function_handle_default(total, "gridrpc/sum"), GRPC_NO_ERROR)
    call tell("a session")
    call a_chain()
    call own_work()
    call results_that_stay()
    call a_block_that_is_left()
    call an_unknown_heuristic()
    call plans()
    call a_heuristic()
    call a_described_graph()
    call remotes()
    call data_in_memory()
    call data_in_files()
    call a_matrix()
    call gives(grpc_finalize(), GRPC_NO_ERROR)
    call tell("finalize")
    call leave()
contains
    subroutine fill()
        x = 1
        y = 10
        z = 100
        sum = -1
    end subroutine

    subroutine a_chain()
        type(grpc_mapped_np) :: block
        integer(c_int) :: id
        integer :: runs
        runs = 0
        call fill()
        call grpc_map(block, "auto")
        do while (grpc_map_next_np(block))
            runs = runs + 1
            call holds(grpc_map_phase_np() == runs)
            call gives(grpc_call(axpy, n, 2d0, x, y), GRPC_NO_ERROR)
            call gives(grpc_call_async(axpy, id, n, 1d0, y, z), GRPC_NO_ERROR)
            call gives(grpc_wait(id), GRPC_NO_ERROR)
            call gives(grpc_call(total, int(n, c_int64_t), z, sum), GRPC_NO_ERROR)
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(grpc_map_phase_np() == 0)
        call holds(runs == 2)
        call holds(all(y == 12) .and. all(z == 112) .and. sum == 112d0 * n)
        call tell("a chain in a block")
        call gives(grpc_map_report_np("blocks.txt"), GRPC_NO_ERROR)
        call holds(has("blocks.txt", "3 calls"))
        call tell("its report")
    end subroutine

    ! Whether a file contains these words.
    logical function has(file, words)
        character(len=*), intent(in) :: file, words
        character(len=500) :: line
        integer :: unit, ended
        has = .false.
        open(newunit=unit, file=file, status="old", action="read")
        do
            read (unit, '(a)', iostat=ended) line
            if (ended /= 0) exit
            has = has .or. index(line, words) > 0
        end do
        close(unit)
    end function

    subroutine own_work()
        type(grpc_mapped_np) :: block
        real(c_double) :: seen
        integer :: runs
        runs = 0
        seen = 0
        call fill()
        call grpc_map(block)
        do while (grpc_map_next_np(block))
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
            call gives(grpc_local_reads(y, z), GRPC_NO_ERROR)
            call gives(grpc_local_writes(y), GRPC_NO_ERROR)
            if (grpc_local()) then
                runs = runs + 1
                seen = y(n)
                y = 2 * y
            end if
            call gives(grpc_call(axpy, n, 1d0, y, z), GRPC_NO_ERROR)
            call gives(grpc_fetch(z), GRPC_NO_ERROR)
            if (grpc_local()) call holds(z(1) == 122)
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(runs == 1 .and. seen == 11 .and. all(z == 122))
        call tell("the program's own work")
    end subroutine

    subroutine results_that_stay()
        type(grpc_mapped_np) :: block
        call fill()
        call grpc_map(block, "heft")
        do while (grpc_map_next_np(block))
            call gives(grpc_stays_remote(y, z), GRPC_NO_ERROR)
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
            call gives(grpc_call(axpy, n, 1d0, y, z), GRPC_NO_ERROR)
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call gives(grpc_call(total, int(n, c_int64_t), z, sum), GRPC_NO_ERROR)
        call holds(all(y == 10) .and. sum == 111d0 * n)
        call gives(grpc_fetch(y), GRPC_NO_ERROR)
        call holds(all(y == 11) .and. all(z == 100))
        call gives(grpc_forget_np(z), GRPC_NO_ERROR)
        call gives(grpc_fetch(z), GRPC_NO_ERROR)
        call gives(grpc_forget_np(), GRPC_NO_ERROR)
        call holds(all(z == 100))
        call tell("results that stay where they are made")
        call gives(grpc_stays_remote(y), GRPC_OTHER_ERROR_CODE)
        call tell("outside of a block")
    end subroutine

    ! The procedure that has the block's variable leaves the loop, and returns.
    subroutine leaves(in_run)
        integer, intent(in) :: in_run
        type(grpc_mapped_np) :: block
        call grpc_map(block, "auto")
        do while (grpc_map_next_np(block))
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
            if (grpc_map_phase_np() == in_run) exit
        end do
    end subroutine

    subroutine a_block_that_is_left()
        call fill()
        call leaves(1)
        call gives(grpc_map_error_np(), GRPC_OTHER_ERROR_CODE)
        call holds(index(grpc_last_error_text_np(), "with cycle") > 0)
        call holds(grpc_map_phase_np() == 0)
        call holds(all(y == 10))
        call tell("a block that is left before its calls are made")
        call leaves(2)
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(all(y == 11))
        call tell("and afterwards")
    end subroutine

    subroutine an_unknown_heuristic()
        type(grpc_mapped_np) :: block
        call fill()
        call grpc_map(block, "hefty")
        do while (grpc_map_next_np(block))
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
        end do
        call gives(grpc_map_error_np(), GRPC_OTHER_ERROR_CODE)
        call holds(index(grpc_last_error_text_np(), "hefty") > 0)
        call holds(all(y == 11))
        call tell("an unknown heuristic")
    end subroutine

    subroutine plans()
        type(grpc_mapped_np) :: block
        character(len=:), allocatable :: plan, moved
        real(c_double) :: seconds
        integer :: runs, calls
        runs = 0
        call fill()
        call grpc_plan(block, "heft")
        do while (grpc_map_next_np(block))
            runs = runs + 1
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
            call gives(grpc_call(axpy, n, 1d0, y, z), GRPC_NO_ERROR)
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(runs == 1 .and. all(y == 10))
        call gives(grpc_plan_save_np("fortran.json"), GRPC_NO_ERROR)
        call gives(grpc_plan_get_np(plan), GRPC_NO_ERROR)
        call gives(grpc_plan_predicted_np(plan, seconds, calls), GRPC_NO_ERROR)
        call holds(seconds > 0 .and. calls == 2)
        call tell("a block that is only planned")
        call gives(grpc_plan_move_np(plan, 1, "server-4", moved), GRPC_NO_ERROR)
        call holds(grpc_plan_server_np(moved, 1) == "server-4")
        call gives(grpc_plan_move_np(plan, 1, "nobody", moved), GRPC_OTHER_ERROR_CODE)
        call holds(moved == "")
        call holds(grpc_plan_server_np(plan, 2) == "")
        call gives(grpc_plan_move_np(plan, 1, "server-4", moved), GRPC_NO_ERROR)
        call gives(grpc_plan_define_np("moved", moved), GRPC_NO_ERROR)
        call tell("a plan that is edited")
        call grpc_map(block, "moved")
        do while (grpc_map_next_np(block))
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
            call gives(grpc_call(axpy, n, 1d0, y, z), GRPC_NO_ERROR)
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(all(y == 11) .and. all(z == 111))
        call gives(grpc_plan_get_np(plan), GRPC_NO_ERROR)
        call holds(grpc_plan_server_np(plan, 1) == "server-4")
        call gives(grpc_plan_define_np("moved"), GRPC_NO_ERROR)
        call tell("and run")
        call grpc_map(block, "file:fortran.json")
        do while (grpc_map_next_np(block))
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
            call gives(grpc_call(axpy, n, 1d0, y, z), GRPC_NO_ERROR)
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(all(y == 12))
        call tell("a plan of a file")
    end subroutine

    ! Puts the second call on the last server. Its result reports unexpected input.
    integer(c_int) function spreads(problem, servers, order, context) bind(c)
        type(grpc_problem_np), intent(in) :: problem
        integer(c_int), intent(inout) :: servers(*), order(*)
        type(c_ptr), value :: context
        type(grpc_problem_call_np), pointer :: calls(:)
        type(grpc_problem_server_np), pointer :: known(:)
        type(grpc_problem_datum_np), pointer :: data(:)
        integer(c_int), pointer :: inputs(:), asked
        real(c_double), pointer :: seconds(:)
        real(c_double) :: moved
        spreads = 1
        call c_f_pointer(context, asked)
        asked = asked + 1
        call c_f_pointer(problem%calls, calls, [problem%calls_count])
        call c_f_pointer(problem%servers, known, [problem%servers_count])
        call c_f_pointer(problem%data, data, [problem%data_count])
        if (size(calls) /= 2 .or. size(known) /= 4 .or. order(2) /= 1) return
        call c_f_pointer(calls(2)%inputs, inputs, [calls(2)%inputs_count])
        call c_f_pointer(calls(2)%seconds, seconds, [problem%servers_count])
        if (all(data(inputs + 1)%producer /= 0) .or. any(seconds <= 0)) return
        moved = grpc_problem_link_seconds_np(problem, 4, 0, data(1)%size_bytes)
        if (moved <= 0) return
        servers(1:2) = [0, 3]
        spreads = 0
    end function

    subroutine a_heuristic()
        type(grpc_mapped_np) :: block
        character(len=:), allocatable :: plan
        integer(c_int), target, volatile :: asked
        asked = 0
        call fill()
        call gives(grpc_heuristic_define_np("spreads", spreads, c_loc(asked), 20d0), GRPC_NO_ERROR)
        call grpc_map(block, "spreads")
        do while (grpc_map_next_np(block))
            call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
            call gives(grpc_call(axpy, n, 1d0, y, z), GRPC_NO_ERROR)
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call gives(grpc_plan_get_np(plan), GRPC_NO_ERROR)
        call holds(grpc_plan_server_np(plan, 1) == "server-4")
        call holds(asked == 1 .and. all(z == 111))
        call tell("a heuristic of the program's own")
        call gives(grpc_heuristic_define_np("spreads"), GRPC_NO_ERROR)
        call gives(grpc_heuristic_define_np("heft", spreads), GRPC_OTHER_ERROR_CODE)
        call tell("and its name")
    end subroutine

    subroutine a_described_graph()
        type(grpc_mapped_np) :: block
        character(len=:), allocatable :: graph, plan
        integer :: i, steps
        call gives(grpc_describe_optional_np(.true.), GRPC_OTHER_ERROR_CODE)
        call fill()
        call grpc_describe(block, "steps")
        do while (grpc_map_next_np(block))
            do i = 1, 10
                call gives(grpc_describe_optional_np(i > 1), GRPC_NO_ERROR)
                call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
                call gives(grpc_call(total, int(n, c_int64_t), y, sum), GRPC_NO_ERROR)
                call gives(grpc_fetch(sum), GRPC_NO_ERROR)
            end do
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(all(y == 10))
        call tell("calls that are described")
        steps = 0
        call grpc_follow(block, "steps", "heft")
        do while (grpc_map_next_np(block))
            do
                call gives(grpc_call(axpy, n, 1d0, x, y), GRPC_NO_ERROR)
                call gives(grpc_call(total, int(n, c_int64_t), y, sum), GRPC_NO_ERROR)
                call gives(grpc_fetch(sum), GRPC_NO_ERROR)
                steps = steps + 1
                if (sum > 12.5d0 * n) exit
            end do
        end do
        call gives(grpc_map_error_np(), GRPC_NO_ERROR)
        call holds(steps == 3 .and. all(y == 13))
        call tell("and followed")
        call gives(grpc_graph_get_np("steps", graph), GRPC_NO_ERROR)
        call gives(grpc_graph_define_np("copy", graph), GRPC_NO_ERROR)
        call gives(grpc_graph_save_np("copy", "fortran_graph.json"), GRPC_NO_ERROR)
        call gives(grpc_graph_define_np("copy"), GRPC_NO_ERROR)
        call gives(grpc_graph_plan_np("copy", "heft", plan), GRPC_OTHER_ERROR_CODE)
        call gives(grpc_graph_plan_np("file:fortran_graph.json", "heft", plan), GRPC_NO_ERROR)
        call holds(grpc_plan_server_np(plan, 19) /= "")
        call tell("as a text and a file")
    end subroutine

    subroutine remotes()
        type(grpc_remote_t) :: a, found
        type(grpc_arg_stack_t) :: stack
        integer(c_size_t) :: bytes
        call fill()
        call gives(grpc_remote_new_np(a, "A"), GRPC_NO_ERROR)
        call gives(grpc_remote_put_np(a, y, c_sizeof(y)), GRPC_NO_ERROR)
        call gives(grpc_call(axpy, n, 1d0, x, a%value), GRPC_NO_ERROR)
        call gives(grpc_call(axpy, n, 1d0, a%value, z), GRPC_NO_ERROR)
        call holds(all(y == 10) .and. all(z == 111))
        call tell("a remote datum")
        call gives(grpc_remote_find_np(found, "A"), GRPC_NO_ERROR)
        call holds(associated(found%value, a%value))
        call gives(grpc_remote_find_np(found, "B"), GRPC_INVALID_DATA_NP)
        call gives(grpc_remote_wait_np(a), GRPC_NO_ERROR)
        call gives(grpc_remote_size_np(a, bytes), GRPC_NO_ERROR)
        call holds(bytes == c_sizeof(y))
        call gives(grpc_remote_get_np(a, y, c_sizeof(y)), GRPC_NO_ERROR)
        call holds(all(y == 11))
        call tell("its name, size and value")
        call stack%push_value(int(n, c_int64_t))
        call stack%push(c_loc(a%value))
        call stack%push(sum)
        call gives(grpc_call_arg_stack(total, stack), GRPC_NO_ERROR)
        call holds(sum == 11d0 * n)
        call tell("on an argument stack")
        call gives(grpc_remote_free_np(a), GRPC_NO_ERROR)
        call gives(grpc_remote_free_np(a), GRPC_INVALID_DATA_NP)
        call gives(grpc_call_arg_stack(total, stack), GRPC_INVALID_DATA_NP)
        call gives(grpc_call(total, int(n, c_int64_t), a%value, sum), GRPC_OTHER_ERROR_CODE)
        call tell("one that was freed")
    end subroutine

    subroutine data_in_memory()
        type(grpc_data_t), target :: in, out
        type(c_ptr) :: found
        character(len=:), allocatable :: told
        call fill()
        call gives(grpc_data_memory_mapping_set("y", y), GRPC_NO_ERROR)
        call gives(grpc_data_memory_mapping_set("z", z), GRPC_NO_ERROR)
        call gives(grpc_data_memory_mapping_get("z", found), GRPC_NO_ERROR)
        call holds(c_associated(found, c_loc(z)))
        call gives(grpc_data_init(in, GRPC_DOUBLE, [n], input_uris=["memory:y"]), GRPC_NO_ERROR)
        call gives(grpc_data_init(out, GRPC_DOUBLE, [n], input_uris=["memory:z"], &
            output_uris=[character(len=9) :: "memory:z", "gridloom:"], &
            output_modes=[GRPC_VOLATILE, GRPC_PERSISTENT]), GRPC_NO_ERROR)
        call gives(grpc_call(axpy, n, 2d0, in, out), GRPC_NO_ERROR)
        call holds(all(z == 120))
        call gives(grpc_call(total, int(n, c_int64_t), out, sum), GRPC_NO_ERROR)
        call holds(sum == 120d0 * n)
        call tell("data in memory and on a server")
        call gives(grpc_data_getinfo(out, GRPC_OUTPUT_URI, told), GRPC_NO_ERROR)
        call holds(told == "memory:z" // new_line("a") // "gridloom:")
        call gives(grpc_data_getinfo(out, 99, told), GRPC_INVALID_DATA_NP)
        call holds(told == "")
        call tell("what is known of a datum")
        call gives(grpc_data_unbind(in), GRPC_NO_ERROR)
        call gives(grpc_data_unbind(in), GRPC_INVALID_DATA_NP)
        call gives(grpc_data_free(out), GRPC_NO_ERROR)
        call gives(grpc_data_memory_mapping_set("z"), GRPC_NO_ERROR)
        call gives(grpc_data_memory_mapping_get("z", found), GRPC_INVALID_DATA_NP)
        call tell("what ends")
        call gives(grpc_data_init(out, GRPC_DOUBLE, output_uris=["s3:bucket"]), GRPC_INVALID_DATA_NP)
        call tell("a kind of place that there is not")
    end subroutine

    subroutine data_in_files()
        type(grpc_data_t), target :: data(2), container, again
        integer :: first
        call fill()
        call gives(grpc_data_memory_mapping_set("y", y), GRPC_NO_ERROR)
        call gives(grpc_data_memory_mapping_set("z", z), GRPC_NO_ERROR)
        call gives(grpc_data_init(data(1), GRPC_DOUBLE, [n], ["memory:y"], ["file:fortran.bin"]), GRPC_NO_ERROR)
        call gives(grpc_data_transfer(data(1)), GRPC_NO_ERROR)
        call gives(grpc_data_wait(data, GRPC_DATA_WAIT_ALL), GRPC_INVALID_DATA_NP)
        call gives(grpc_data_wait(data(1:1), GRPC_DATA_WAIT_ANY, first), GRPC_NO_ERROR)
        call holds(first == 1)
        call gives(grpc_data_init(data(2), GRPC_DOUBLE, [n], ["file:fortran.bin"], ["memory:z"]), GRPC_NO_ERROR)
        call gives(grpc_data_transfer(data(2)), GRPC_NO_ERROR)
        call gives(grpc_data_wait(data(2)), GRPC_NO_ERROR)
        call holds(all(z == 10))
        call tell("data in files")
        call gives(grpc_data_save(data(2), "file:fortran.toml"), GRPC_NO_ERROR)
        call gives(grpc_data_load(again, "file:fortran.toml"), GRPC_NO_ERROR)
        call gives(grpc_call(total, int(n, c_int64_t), again, sum), GRPC_NO_ERROR)
        call holds(sum == 10d0 * n)
        call tell("a description that was saved")
        call gives(grpc_data_init(container, GRPC_CONTAINER_OF_GRPC_DATA, [2]), GRPC_NO_ERROR)
        call gives(grpc_data_container_set(container, 1, data(2)), GRPC_NO_ERROR)
        call gives(grpc_data_container_get(container, 1, again), GRPC_NO_ERROR)
        call gives(grpc_data_container_get(container, 2, again), GRPC_INVALID_DATA_NP)
        call tell("a container")
        call gives(grpc_data_free(data(1), ["file:fortran.bin"]), GRPC_NO_ERROR)
        ! They are known by their addresses, which other variables get.
        call gives(grpc_data_unbind(again), GRPC_NO_ERROR)
        call gives(grpc_data_unbind(container), GRPC_NO_ERROR)
        call gives(grpc_data_unbind(data(2)), GRPC_NO_ERROR)
        call tell("a file is deleted")
    end subroutine

    ! Dimensions are those of Fortran: b(2, 3) is b[3][2] for the function.
    subroutine a_matrix()
        type(grpc_function_handle_t) :: transposes
        type(grpc_data_t), target :: turned
        real(c_float), target, asynchronous :: a(3, 2), b(2, 3)
        character(len=:), allocatable :: told
        a = reshape([1., 2., 3., 4., 5., 6.], [3, 2])
        b = 0
        call gives(grpc_function_handle_default(transposes, "gridrpc/transpose"), GRPC_NO_ERROR)
        call gives(grpc_data_memory_mapping_set("b", b), GRPC_NO_ERROR)
        call gives(grpc_data_init(turned, GRPC_FLOAT, shape(b), output_uris=["memory:b"]), GRPC_NO_ERROR)
        call gives(grpc_data_getinfo(turned, GRPC_DIMENSION, told), GRPC_NO_ERROR)
        call holds(told == "3" // new_line("a") // "2")
        call gives(grpc_call(transposes, 2, 3, a, turned), GRPC_NO_ERROR)
        call holds(all(b == transpose(a)))
        call tell("a matrix")
    end subroutine
end program
