! The arguments on a stack, within a function that calls with them: declared, and made a stack of C, `passed`. Last of the function's
! declarations; its result is `given`. If they cannot be passed, `passed` is null, and -1 stands for the error. `destruct` ends it.
        type(grpc_arg_stack_t), intent(in), target :: stack
        type(c_ptr) :: passed
        given = -1
        passed = as_c(stack)
