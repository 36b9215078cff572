! Converts strings between Fortran and C. For the other modules only: grpc does not export it.
module grpc_texts
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: c_text, c_optional, c_texts, fortran_text, taken_text

    ! C strings, and the address of each.
    type, public :: texts_of_c
        type(c_ptr), allocatable :: pointers(:)
        character(kind=c_char), allocatable :: letters(:, :)
    end type

    interface
        integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
            import
            type(c_ptr), value :: text
        end function
        subroutine c_free(memory) bind(c, name="free")
            import
            type(c_ptr), value :: memory
        end subroutine
    end interface

contains

    function c_text(text)
        character(len=*), intent(in) :: text
        character(kind=c_char, len=len_trim(text) + 1) :: c_text
        c_text = trim(text) // c_null_char
    end function

    ! Returns the address of a C string in `memory`; null without a text.
    function c_optional(text, memory) result(address)
        character(len=*), intent(in), optional :: text
        character(kind=c_char, len=:), allocatable, intent(inout), target :: memory
        type(c_ptr) :: address
        address = c_null_ptr
        if (.not. present(text)) return
        memory = c_text(text)
        address = c_loc(memory)
    end function

    ! Returns a list that ends with a null pointer; null without strings. `all` contains the strings to which it
    ! points.
    function c_texts(texts, all) result(list)
        character(len=*), intent(in), optional :: texts(:)
        type(texts_of_c), intent(inout), target :: all
        type(c_ptr) :: list
        integer :: i, j
        list = c_null_ptr
        if (.not. present(texts)) return
        allocate(all%letters(len(texts) + 1, max(1, size(texts))), all%pointers(size(texts) + 1))
        all%letters = c_null_char
        all%pointers = c_null_ptr
        do i = 1, size(texts)
            do j = 1, len_trim(texts(i))
                all%letters(j, i) = texts(i)(j:j)
            end do
            all%pointers(i) = c_loc(all%letters(1, i))
        end do
        list = c_loc(all%pointers)
    end function

    function fortran_text(from) result(text)
        type(c_ptr), intent(in) :: from
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: letters(:)
        integer :: i
        text = ""
        if (.not. c_associated(from)) return
        call c_f_pointer(from, letters, [c_strlen(from)])
        text = repeat(" ", size(letters))
        do i = 1, size(letters)
            text(i:i) = letters(i)
        end do
    end function

    ! The same for a string that belongs to the program, and that is freed.
    function taken_text(from) result(text)
        type(c_ptr), intent(in) :: from
        character(len=:), allocatable :: text
        text = fortran_text(from)
        call c_free(from)
    end function

end module grpc_texts
