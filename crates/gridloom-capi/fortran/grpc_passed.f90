! The arguments on a stack, inside a function that calls with them: declares them, and converts them to a C stack,
! `passed`. Last of the function's declarations; its result is `given`. If they cannot be passed, `passed` is null,
! and the result is -1. `destruct` ends it.
        type(grpc_arg_stack_t), intent(in), target :: stack
        type(c_ptr) :: passed
        given = -1
        passed = as_c(stack)
